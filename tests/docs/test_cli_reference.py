"""The command-line reference docs/cli.md is what docs/generate.py generates from the commands."""

import importlib.util
from pathlib import Path

import pytest

GENERATOR = Path(__file__).parents[2] / "docs" / "generate.py"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_line_reference_is_current(generate):
    assert generate.PAGE.read_text(encoding="utf-8") == generate.render(), "run `python docs/generate.py`"


def test_every_command_has_a_section_with_an_example(generate):
    for command in generate.commands(generate.app, "doap"):
        assert "Example:" in generate.section(command), command.name
