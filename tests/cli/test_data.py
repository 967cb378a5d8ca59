"""The `doap data` commands: output, and one clear line per error."""

import json

import cv2
import numpy as np
import pytest

from oracles.corner_scene import ANGLES, pose, render
from oracles.forked import run_forked
from oracles.interpreter import run_python
from oracles.photos import write_photo
from oracles.plane_scene import write_scene


def doap(*arguments):
    return run_forked("from doap.cli import main; main()", *arguments)


def assert_one_line(ran, *words):
    """Check for exit code 1, empty stdout and one line that names the subject."""
    lines = [line for line in ran.stderr.splitlines() if line.strip()]
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    assert len([line for line in lines if line.startswith("doap: ")]) == 1
    assert "Traceback" not in ran.stderr
    for word in words:
        assert word in lines[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    write_photo(folder / "photos" / "hill" / "1.png", 0)
    write_photo(folder / "photos" / "lake" / "1.png", 1)
    ran = doap(
        "data", "from-images", folder / "photos", "--out", folder / "set", "--views", 2, "--keypoints", 40, "--json"
    )
    assert ran.returncode == 0, ran.stderr
    return folder, json.loads(ran.stdout)


def test_set_is_built_reported_and_drawn(built):
    folder, values = built
    assert values["patches"] > 50
    assert set(values["groups_per_scene"]) == {"hill", "lake"}
    assert (folder / "set" / "preview.png").stat().st_size > 1000


def test_preview_checks_reports_and_draws_a_set(built, tmp_path):
    folder, values = built
    ran = doap("data", "preview", folder / "set", "--out", tmp_path / "p.png", "--groups", 4, "--json")
    assert json.loads(ran.stdout) == {**values, "preview": str(tmp_path / "p.png")}
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_model_is_converted_to_a_set(tmp_path):
    points = np.column_stack([np.random.default_rng(0).uniform(-1, 1, (20, 2)), np.zeros(20)])
    write_scene(tmp_path, points)
    sparse, images = tmp_path / "sparse", tmp_path / "images"
    ran = doap("data", "from-colmap", sparse, images, "--database", tmp_path / "database.db", "--out", tmp_path / "set")
    assert ran.returncode == 0, ran.stderr
    assert "patches in 20 groups" in ran.stdout


def test_scenes_are_built_from_known_poses(tmp_path):
    folder = tmp_path / "photos" / "corner"
    folder.mkdir(parents=True)
    lines = ["file,rotation_matrix,translation_vector"]
    for number, angle in enumerate(ANGLES):
        matrix = pose(angle)
        cv2.imwrite(str(folder / f"{number}.png"), render(matrix))
        rotation, translation = (";".join(map(str, part.ravel())) for part in (matrix[:, :3], matrix[:, 3]))
        lines.append(f"corner/{number}.png,{rotation},{translation}")
    poses = tmp_path / "poses.csv"
    poses.write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / "scenes"
    ran = doap("data", "from-poses", poses, tmp_path / "photos", "--max-keypoints", "300", "--out", out, "--json")
    assert json.loads(ran.stdout) == {"scenes": [str(out / "corner")]}
    assert (out / "corner" / "sparse" / "points3D.bin").is_file()


def test_a_truncated_photo_is_one_line(tmp_path):
    for seed in range(3):
        write_photo(tmp_path / "photos" / f"{seed}.jpg", seed)
    cut = tmp_path / "photos" / "1.jpg"
    cut.write_bytes(cut.read_bytes()[:3000])
    ran = doap("data", "from-images", tmp_path / "photos", "--out", tmp_path / "set", "--workers", 2)
    assert_one_line(ran, "1.jpg", "truncated")


def test_wrong_usage_exits_with_two(tmp_path):
    assert doap("data", "from-poses", tmp_path / "poses.csv", "--out", tmp_path).returncode == 2


def test_the_command_line_starts_without_torch():
    run_python("-c", "import sys, doap.cli; sys.exit('torch' in sys.modules)")
