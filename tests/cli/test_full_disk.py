"""A full disk is one line and exit code 1 in every command that writes, and leaves no half-written output."""

import numpy as np
import pytest

import doap as library
from doap.data import SetWriter, UnitGroups
from oracles.full_disk import full_disk
from oracles.photos import write_photo

pytest.importorskip("resource")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Photos, their features, and a patch set."""
    folder = tmp_path_factory.mktemp("inputs")
    for seed in range(3):
        write_photo(folder / "photos" / f"{seed}.png", seed, 120, 160)
    library.extract_folder(folder / "photos", folder / "features", "doap-128", workers=1, max_keypoints=100)
    random = np.random.default_rng(0)
    with SetWriter(folder / "set", 32, {}, []) as writer:
        for scene in "ab":
            position, ignore = np.zeros((40, 3), np.float32), np.empty((0, 2), np.int64)
            groups = UnitGroups(np.full(40, 2), scene, position, scene, ignore)
            writer.add(scene, random.integers(0, 256, (80, 32, 32), np.uint8), groups)
        writer.finish()
    return folder


COMMANDS = {
    "extract": ("extract", "photos", "--descriptor", "doap-128", "--workers", "1"),
    "hloc": ("hloc", "photos"),
    "opensfm": ("opensfm", "photos"),
    "colmap": ("colmap", "photos"),
    "index": ("index", "build", "features"),
    "export": ("export", "doap-128", "--to", "onnx"),
    "split": ("data", "split", "set", "a"),
    "match": ("match", "photos/0.png", "photos/1.png"),
    "from-images": ("data", "from-images", "photos", "--no-tracks", "--workers", "1"),
}


def arguments_of(command, inputs):
    """Return the words of a command, with the paths of its inputs."""
    name, *words = COMMANDS[command]
    return [name, *(inputs / word if (inputs / word).exists() else word for word in words)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line(doap, inputs, tmp_path, command):
    arguments = arguments_of(command, inputs)
    out = tmp_path / ("out.png" if command == "match" else "out.onnx" if command == "export" else "out")
    with full_disk():
        ran = doap(*arguments, "--out", out)
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("doap: ")
    assert "cannot be written: File too large. Free some space" in ran.stderr
    assert not out.is_file()


@pytest.mark.parametrize("limit", [30_000, 100_000])
def test_a_disk_that_fills_up_while_hdf5_writes_is_one_line(doap, inputs, tmp_path, limit):
    with full_disk(limit):
        ran = doap("hloc", inputs / "photos", "--out", tmp_path / "out.h5", "--descriptor", "rootsift", "--json")
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1), ran.stderr
    assert "cannot be written: File too large" in ran.stderr


def test_a_full_disk_during_training_is_one_line(doap, inputs, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[schedule]\nsteps = 2\n[data]\nbatch_size = 16\n[network]\ndim = 16\n[run]\nlog_every = 1\n")
    with full_disk():
        ran = doap("train", recipe, "--data", inputs / "set", "--out", tmp_path / "run", "--device", "cpu")
    assert ran.returncode == 1
    assert "cannot be written: File too large" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_inside_a_file_is_one_line(doap, inputs, tmp_path, command):
    (tmp_path / "file").touch()
    arguments = arguments_of(command, inputs)
    ran = doap(*arguments, "--out", tmp_path / "file" / "out.png")
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert ran.stderr.startswith("doap: ")
