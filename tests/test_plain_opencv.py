"""With the plain OpenCV that `pip install doap` installs, everything works except what is in the contrib modules."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import doap
from oracles.interpreter import run_python
from oracles.photos import write_photo

RUN = """
import json, sys
import cv2
from doap.cli import main

assert cv2.__file__.startswith(sys.argv[1]), cv2.__file__
codes = []
for words in json.loads(sys.argv[2]):
    sys.argv = ["doap", *words]
    try:
        main()
    except SystemExit as end:
        codes.append(end.code or 0)
print("codes", codes)
"""
"""Program that runs several commands in one process and prints their exit codes."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Folder of a plain OpenCV."""
    folder = tmp_path_factory.mktemp("plain")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:")
    ran = subprocess.run([*pip, "--target", folder, "opencv-python-headless"], capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"pip cannot install opencv-python-headless: {ran.stderr[-200:]}")
    return folder


def run_with(plain, *words):
    """Run Python in a process that finds the plain OpenCV first."""
    return run_python(*words, PYTHONPATH=os.pathsep.join([str(plain), str(Path(doap.__file__).parents[1])]))


def run_commands(plain, *commands):
    """Run commands of doap with the plain OpenCV; return their exit codes, and what they wrote to stderr."""
    words = json.dumps([list(map(str, command)) for command in commands])
    ran = run_with(plain, "-c", RUN, plain, words)
    return json.loads(ran.stdout.rpartition("codes ")[2]), ran.stderr


@pytest.mark.slow
def test_matching_colmap_and_training_need_no_contrib(plain, tmp_path):
    pytest.importorskip("pycolmap")
    for seed in range(3):
        write_photo(tmp_path / "photos" / f"scene{seed}" / "1.png", seed)
    photo, patches, recipe = tmp_path / "photos/scene0/1.png", tmp_path / "my.patches", tmp_path / "recipe.toml"
    recipe.write_text("[data]\nbatch_size = 32\n[network]\nwidth = 0.25\n[schedule]\nsteps = 2\n")
    few = ("--max-keypoints", 200)
    commands = [
        ("match", "--sample", "--out", tmp_path / "matches.png"),
        ("match", photo, photo, "--descriptor", "sift", *few),
        ("match", photo, photo, "--descriptor", "orb", "--detector", "orb", *few),
        ("match", photo, photo, "--descriptor", "doap-fast", "--detector", "fast", *few),
        ("colmap", tmp_path / "photos", "--out", tmp_path / "database.db", *few),
        ("data", "from-images", tmp_path / "photos", "--out", patches, "--views", 2, "--keypoints", 60),
        ("train", recipe, "--data", patches, "--out", tmp_path / "run"),
    ]
    codes, errors = run_commands(plain, *commands)
    assert codes == [0] * len(commands), errors
    assert (tmp_path / "run" / "best.safetensors").exists()


@pytest.mark.slow
def test_what_needs_contrib_says_how_to_install_it(plain):
    options = (("--descriptor", "teblid"), ("--descriptor", "akaze"), ("--detector", "akaze"))
    codes, errors = run_commands(plain, *(("match", "--sample", *option) for option in options))
    assert codes == [1, 1, 1]
    for (_, name), line in zip(options, errors.splitlines(), strict=True):
        assert re.fullmatch(rf"doap: {name}: .* is not installed. Run `pip install .*opencv-contrib-python.*`\.", line)


@pytest.mark.slow
def test_results_name_the_opencv_that_was_used(plain):
    code = "from doap.evaluation.run import library_versions; print(*library_versions().items(), sep='\\n')"
    used = re.findall(r"'(opencv.*?)', '(.*?)'", run_with(plain, "-c", code).stdout)
    version = (plain / "cv2" / "version.py").read_text()
    assert used == [("opencv-python-headless", re.findall('opencv_version = "(.*?)"', version)[0])]
