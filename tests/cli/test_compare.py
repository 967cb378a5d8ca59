"""The `doap compare` command."""

import json

import pytest

from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Six photos and a damaged one; the first five show the same."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(6):
        write_photo(folder / f"{number}.png", number // 5, height=120, width=160)
    (folder / "6.jpg").write_bytes(b"no photo")
    return folder


def test_table_verdict_and_page_are_printed(doap, photos, tmp_path):
    arguments = ("--descriptor", "rootsift", "--baselines", "sift, rootsift", "--max-keypoints", 100, "--out", tmp_path)
    ran = doap("compare", photos, *arguments, "--no-reconstruction")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].split()[-2:] == ["rootsift", "sift"]
    assert lines[1].startswith("verified inliers ")
    assert lines[-3] == "no reconstructions: not requested"
    assert lines[-2].startswith("Too few pairs of photos overlap to decide between rootsift and sift: ")
    assert lines[-1] == f"Wrote {tmp_path / 'index.html'}"
    assert "skipped: " in ran.stderr
    assert "6.jpg" in ran.stderr


def test_json_equals_the_report_and_the_shipped_descriptor_is_the_default_candidate(doap, photos, tmp_path):
    ran = doap("compare", photos, "--out", tmp_path, "--max-keypoints", 50, "--no-reconstruction", "--json")
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert values == json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    results = values["results"]["pairs of photos that overlap"]
    assert [one["descriptor"]["name"] for one in results] == ["doap-128", "sift", "rootsift"]
