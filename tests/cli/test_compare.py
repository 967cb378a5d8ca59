"""The `doap compare` command."""

import json

import pytest

from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(6):
        write_photo(folder / f"{seed}.png", seed, height=120, width=160)
    (folder / "6.jpg").write_bytes(b"no photo")
    return folder


def test_table_verdict_and_page_are_printed(doap, photos, tmp_path):
    arguments = ("--descriptor", "rootsift", "--baselines", "sift, rootsift", "--max-keypoints", 100, "--out", tmp_path)
    ran = doap("compare", photos, *arguments)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].split() == ["rootsift", "sift"]
    assert any(line.startswith("AP") for line in lines)
    assert any(line.startswith("no reconstruction: ") for line in lines)
    assert any(line.startswith("No significant difference on 6 photos: ") for line in lines)
    assert lines[-1] == f"Wrote {tmp_path / 'index.html'}"
    assert "skipped: " in ran.stderr
    assert "6.jpg" in ran.stderr


def test_json_equals_the_report(doap, photos, tmp_path):
    arguments = (
        "--descriptor",
        "sift",
        "--baselines",
        "random",
        "--max-keypoints",
        50,
        "--no-reconstruction",
        "--json",
    )
    ran = doap("compare", photos, *arguments, "--out", tmp_path)
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert values == json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert values["reconstruction_note"] == "not requested"
    assert [one["name"] for one in values["descriptors"]] == ["sift", "random"]


def test_too_few_photos_are_refused_in_one_line(doap, photos, tmp_path):
    ran = doap("compare", photos / "0.png", photos / "1.png", "--out", tmp_path / "report")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "doap: photos: expected at least 6, because fewer cannot decide anything, got 2. Add photos.\n"
    )


def test_the_shipped_descriptor_is_the_default_candidate(doap, photos, tmp_path):
    ran = doap("compare", photos, "--out", tmp_path, "--max-keypoints", 30, "--no-reconstruction", "--json")
    assert ran.returncode == 0, ran.stderr
    assert [one["name"] for one in json.loads(ran.stdout)["descriptors"]] == ["doap-128", "sift", "rootsift"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--descriptor", "nothing.safetensors"], ["nothing.safetensors", "no such name or file"]),
        (
            ["--descriptor", "sift", "--baselines", "sift"],
            ["baselines: expected at least one besides the candidate", "sift"],
        ),
        (["--descriptor", "sift", "--detector", "surf"], ["detector: expected one of sift", "'surf'"]),
        (["--descriptor", "sift", "--baselines", "dsp-sift"], ["dsp-sift", "Use the detector colmap."]),
    ],
)
def test_error_is_one_line(doap, photos, tmp_path, arguments, words):
    ran = doap("compare", photos, *arguments, "--out", tmp_path)
    lines = [line for line in ran.stderr.splitlines() if line.startswith("doap: ")]
    assert (ran.returncode, ran.stdout, len(lines)) == (1, "", 1)
    for word in words:
        assert word in lines[0]
