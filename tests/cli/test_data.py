"""The `doap data` commands: output, and one clear line per error."""

import json

from oracles.interpreter import run_python
from oracles.photos import write_photo


def test_a_set_is_built_reported_and_drawn(doap, tmp_path):
    for seed, scene in enumerate(("hill", "lake")):
        write_photo(tmp_path / "photos" / scene / "1.png", seed)
    words = ("from-images", tmp_path / "photos", "--out", tmp_path / "set", "--views", 2, "--keypoints", 40, "--json")
    values = json.loads(doap("data", *words).stdout)
    assert values["patches"] > 50
    assert set(values["groups_per_scene"]) == {"hill", "lake"}
    assert (tmp_path / "set" / "preview.png").stat().st_size > 1000
    ran = doap("data", "preview", tmp_path / "set", "--out", tmp_path / "p.png", "--groups", 4, "--json")
    assert json.loads(ran.stdout) == {**values, "preview": str(tmp_path / "p.png")}
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_a_photo_that_a_worker_cannot_read_is_one_line(doap, tmp_path):
    for seed in range(3):
        write_photo(tmp_path / "photos" / f"{seed}.jpg", seed)
    cut = tmp_path / "photos" / "1.jpg"
    cut.write_bytes(cut.read_bytes()[:3000])
    ran = doap("data", "from-images", tmp_path / "photos", "--out", tmp_path / "set", "--workers", 2)
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = (line for line in ran.stderr.splitlines() if line.startswith("doap: "))
    assert "1.jpg" in line
    assert "truncated" in line


def test_wrong_usage_exits_with_two(doap, tmp_path):
    assert doap("data", "from-poses", tmp_path / "poses.csv", "--out", tmp_path).returncode == 2


def test_the_command_line_starts_without_torch():
    run_python("-c", "import sys, doap.cli; sys.exit('torch' in sys.modules)")
