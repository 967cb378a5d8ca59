"""What all verbs have in common: `--json`, exit codes, and help that fits a screen and ends with an example."""

import re
import shlex

import pytest
import typer

from doap import __version__
from doap.cli import app

# What each verb is told when its files are not there.
NOWHERE = {
    "match": "no.jpg no.jpg",
    "extract": "no --out out",
    "colmap": "no --out out.db",
    "pairs": "no --out out.txt",
    "compare": "no.jpg --out out",
    "calibrate": "no.jpg",
    "train": "no.toml --out out --allocator default",
    "eval": "sift oxford no --out out",
    "export": "no.safetensors --to onnx --out out.onnx",
    "report": "no --out out",
    "index build": "no --out out",
    "index search": "no.jpg --index no",
    "index add": "no --index no",
    "index remove": "image.jpg --index no",
    "index info": "no",
    "index verify": "no",
    "data from-colmap": "no no --out out",
    "data from-images": "no --out out",
    "data from-public": "no --out out",
    "data check": "no",
    "data preview": "no --out out.png",
    "data split": "no place --out out",
    "data merge": "no --out out",
}
NEEDS_NO_FILE = {"doctor"}


def commands(group, path=""):
    """All commands by what is typed for them, groups and the root among them."""
    yield path.strip(), group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{path} {name}")


ALL = dict(commands(typer.main.get_command(app)))
VERBS = {path: command for path, command in ALL.items() if not hasattr(command, "commands")}


def test_all_verbs_are_looked_at_here():
    assert set(VERBS) == set(NOWHERE) | NEEDS_NO_FILE


@pytest.mark.parametrize("path", VERBS)
def test_every_verb_has_json(path):
    assert "--json" in [name for option in VERBS[path].params for name in option.opts]


@pytest.mark.parametrize("path", NOWHERE)
def test_files_that_are_not_there_exit_with_one_in_one_line(doap, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = doap(*path.split(), *NOWHERE[path].split())
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.fullmatch(r"doap: .*\bno\b.*: .*\n", ran.stderr)


@pytest.mark.parametrize("path", ALL)
def test_wrong_usage_exits_with_two(doap, path):
    ran = doap(*path.split(), "--no-such-option")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--no-such-option" in ran.stderr


@pytest.mark.parametrize("path", ALL)
def test_help_fits_a_screen_and_ends_with_an_example(doap, path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    ran = doap(*path.split(), "--help")
    # Some places where tests run are taken for terminals with colours.
    lines = re.sub(r"\x1b\[[\d;]*m", "", ran.stdout).rstrip().splitlines()
    assert ran.returncode == 0
    assert len(lines) <= 50
    assert lines[-1].strip() == ALL[path].epilog
    assert f"{lines[-1].strip()} ".startswith(f"doap {path}".rstrip() + " ")


@pytest.mark.parametrize("path", ALL)
def test_examples_are_understood(path):
    """Parsed, not run: verbs, options and values exist."""
    _, *words = shlex.split(ALL[path].epilog)
    context = ALL[""].make_context("doap", words.copy())
    while hasattr(context.command, "commands"):
        name, command, words = context.command.resolve_command(context, words)
        context = command.make_context(name, words.copy(), parent=context)


def test_the_version_is_told(doap):
    ran = doap("--version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"doap {__version__}\n", "")


@pytest.mark.parametrize(("typed", "completed"), [("doap ma", "match"), ("doap data from-i", "from-images")])
def test_shells_complete_verbs(doap, monkeypatch, typed, completed):
    monkeypatch.setenv("_DOAP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    ran = doap()
    assert (ran.returncode, ran.stdout.split()) == (0, [completed])
