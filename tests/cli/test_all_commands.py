"""Common to all commands: `--json`, exit codes, and help that fits on a screen and ends with an example."""

import json
import re
import shlex

import pytest
import typer

from doap.cli import app
from oracles.all_commands import WORDS, arguments, prepare, write_all_inputs

# Arguments of each command with files that do not exist.
MISSING_FILES = {
    "match": "no.jpg no.jpg",
    "extract": "no --out out",
    "colmap": "no --out out.db",
    "hloc": "no --out out.h5",
    "opensfm": "no --out out",
    "pairs": "no --out out.txt",
    "localize": "no.jpg --model no --images no --cache out",
    "compare": "no.jpg --out out",
    "train": "no.toml --out out",
    "eval": "sift oxford no --out out",
    "export": "no.safetensors --to onnx --out out.onnx",
    "report": "no --out out",
    "index build": "no --out out",
    "index search": "no.jpg --index no",
    "index add": "no --index no",
    "index remove": "image.jpg --index no",
    "index info": "no",
    "index verify": "no",
    "index vocabulary": "no --out out.txt",
    "index export": "no --out out",
    "data from-colmap": "no no --out out",
    "data from-images": "no --out out",
    "data from-public": "no --out out",
    "data tracks": "no no --database no --out out.parquet",
    "data from-tracks": "no.parquet no --out out",
    "data from-poses": "no no --out out",
    "data preview": "no --out out.png",
    "data split": "no scene --out out",
    "data merge": "no --out out",
}
WITHOUT_FILES = {"doctor"}


def commands(group, path=""):
    """Yield all commands by the words that select them, including groups and the root."""
    yield path.strip(), group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{path} {name}")


ALL = dict(commands(typer.main.get_command(app)))
COMMANDS = {path: command for path, command in ALL.items() if not hasattr(command, "commands")}


def test_every_command_is_covered():
    assert set(COMMANDS) == set(MISSING_FILES) | WITHOUT_FILES


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_json(path):
    assert "--json" in [name for option in COMMANDS[path].params for name in option.opts]


@pytest.mark.parametrize("path", MISSING_FILES)
def test_missing_files_exit_with_one_and_one_line(doap, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = doap(*path.split(), *MISSING_FILES[path].split())
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.fullmatch(r"doap: .*\bno\b.*: .*\n", ran.stderr)


def replaced_words(path, value):
    """Yield the arguments of a command with each value replaced by another, one at a time."""
    words = MISSING_FILES[path].split()
    for number, word in enumerate(words):
        if not word.startswith("--"):
            yield [*path.split(), *words[:number], value, *words[number + 1 :]]


@pytest.mark.parametrize("value", ["", "\udcff.png"])
@pytest.mark.parametrize("path", MISSING_FILES)
def test_an_empty_argument_or_a_name_that_is_not_utf8_is_wrong_usage(doap, path, value, tmp_path, monkeypatch):
    """An unset variable of a shell must not be taken for the current folder."""
    monkeypatch.chdir(tmp_path)
    for words in replaced_words(path, value):
        ran = doap(*words)
        assert (ran.returncode, ran.stdout) == (2, ""), words
        assert "Usage: doap" in ran.stderr


def test_an_option_with_an_empty_value_after_the_equals_sign_is_wrong_usage(doap):
    ran = doap("match", "--sample", "--out=")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--out" in ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        "match no no --threshold inf",
        "match no no --threshold nan",
        f"match no no --max-keypoints {10**30}",
        f"index build no --out out --seed {2**31}",
        "data from-images no --out out --patch-size 1025",
    ],
)
def test_numbers_that_no_computation_can_use_are_wrong_usage(doap, words):
    ran = doap(*words.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words.split()[-2] in ran.stderr


@pytest.mark.parametrize("path", ALL)
def test_wrong_usage_exits_with_two(doap, path):
    ran = doap(*path.split(), "--no-such-option")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--no-such-option" in ran.stderr


@pytest.mark.parametrize("path", ALL)
def test_help_fits_a_screen_and_ends_with_an_example(doap, path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    ran = doap(*path.split(), "--help")
    # Some CI runners are detected as terminals with colours.
    lines = re.sub(r"\x1b\[[\d;]*m", "", ran.stdout).rstrip().splitlines()
    assert ran.returncode == 0
    assert len(lines) <= 50
    assert lines[-1].strip() == ALL[path].epilog
    assert f"{lines[-1].strip()} ".startswith(f"doap {path}".rstrip() + " ")


@pytest.mark.parametrize("path", ALL)
def test_examples_parse(path):
    """Parse the examples without running them: commands, options and values exist."""
    _, *words = shlex.split(ALL[path].epilog)
    context = ALL[""].make_context("doap", words.copy())
    while hasattr(context.command, "commands"):
        name, command, words = context.command.resolve_command(context, words)
        context = command.make_context(name, words.copy(), parent=context)


@pytest.mark.parametrize(("typed", "completed"), [("doap ma", "match"), ("doap data from-i", "from-images")])
def test_shells_complete_commands(doap, monkeypatch, typed, completed):
    monkeypatch.setenv("_DOAP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    ran = doap()
    assert (ran.returncode, ran.stdout.split()) == (0, [completed])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    for needed in ("faiss", "h5py", "kornia", "onnxscript", "pycolmap"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("inputs")
    write_all_inputs(folder)
    return folder


@pytest.mark.parametrize("path", WORDS)
def test_every_command_succeeds_and_prints_json(doap, inputs, tmp_path, path):
    prepare(path, inputs, tmp_path)
    ran = doap(*arguments(path, inputs, tmp_path), "--json")
    # The points of the COLMAP model are random, so no photo has a pose.
    assert ran.returncode == (path == "localize"), ran.stderr
    assert json.loads(ran.stdout)
