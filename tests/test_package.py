"""What is packed: one version everywhere, and the files that a user needs without a network."""

import re
from pathlib import Path

import pytest

import doap

ROOT = Path(__file__).parents[1]
PACKAGE = Path(doap.__file__).parent


def found(pattern, name):
    """What the first match of a pattern holds, in a file of the project."""
    match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert match, f"{name}: expected {pattern}"
    return match[1]


def test_the_newest_changes_are_those_of_this_version():
    assert found(r"^## (\S+)", "CHANGELOG.md") == doap.__version__


def test_citation_and_package_have_one_version_and_one_licence():
    assert found(r"^version: (\S+)$", "CITATION.cff") == doap.__version__
    assert found(r"^license: (\S+)$", "CITATION.cff") == found(r'^license = "(\S+)"$', "pyproject.toml")
    # The package takes it from there, so that there is nothing to compare.
    assert found(r'^path = "(\S+)"$', "pyproject.toml") == "src/doap/__init__.py"


@pytest.mark.parametrize("name", ["photo.jpg", "print.jpg"])
def test_samples_are_small_and_their_rights_are_told(name):
    samples = PACKAGE / "samples"
    assert (samples / name).stat().st_size < 150_000
    table = (samples / "README.md").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(f"| `{name}`") and "CC0 1.0" in line for line in table)


def test_what_is_packed_fits_in_a_wheel():
    """Before compression, which does little to weights and photos; 15 MB is the limit."""
    assert sum(path.stat().st_size for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts) < 15e6
