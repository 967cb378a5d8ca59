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


def test_json_equals_the_report_and_the_shipped_descriptor_is_the_default_candidate(doap, photos, tmp_path):
    ran = doap("compare", photos, "--out", tmp_path, "--max-keypoints", 50, "--no-reconstruction", "--json")
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert values == json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    results = values["results"]["pairs of photos that overlap"]
    assert [one["descriptor"]["name"] for one in results] == ["doap-128", "sift", "rootsift"]
