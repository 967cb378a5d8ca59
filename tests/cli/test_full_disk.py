"""A full disk is one line and exit code 1 in every command that writes, and leaves no half-written output."""

import pytest

from oracles.full_disk import full_disk
from oracles.writing_commands import COMMANDS, write_inputs

pytest.importorskip("resource")
# Those with other engines report a full disk in the same process.
EACH = pytest.mark.parametrize("name", ["match", *(name for name in COMMANDS if " with " not in name)])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


def arguments_of(name, inputs, out):
    """Return the words of a command that writes into this folder."""
    if name == "match":
        return ["match", *(inputs / "images" / f"{number}.png" for number in range(2)), "--out", out / "out.png"]
    command = COMMANDS[name]
    command.prepare(inputs, out)
    return command.arguments(inputs, inputs / (command.images or "images"), out)


@EACH
def test_a_full_disk_is_one_line(doap, inputs, tmp_path, name):
    arguments = arguments_of(name, inputs, tmp_path)
    with full_disk():
        ran = doap(*arguments)
    assert ran.returncode == 1
    # A COLMAP model is read in a process that needs a temporary file.
    problem = (
        "File too large"
        if name in ("data from-colmap", "data tracks")
        else "cannot be written: File too large. Free some space"
    )
    assert problem in ran.stderr.splitlines()[-1]
    assert name == "train" or ran.stderr.count("\n") == 1
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


@pytest.mark.parametrize("limit", [30_000, 100_000])
def test_a_disk_that_fills_up_while_hdf5_writes_is_one_line(doap, inputs, tmp_path, limit):
    with full_disk(limit):
        ran = doap("hloc", inputs / "images", "--out", tmp_path / "out.h5", "--descriptor", "rootsift", "--json")
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1), ran.stderr
    assert "cannot be written: File too large" in ran.stderr


@EACH
def test_an_output_inside_a_file_is_one_line(doap, inputs, tmp_path, name):
    if name in ("index add", "index remove"):
        pytest.skip("changes its input")
    (tmp_path / "file").touch()
    ran = doap(*arguments_of(name, inputs, tmp_path / "file"))
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert ran.stderr.startswith("doap: ")
