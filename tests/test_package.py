"""The package: one version everywhere, and all files that work offline."""

import pkgutil
import re
from pathlib import Path

import pytest

import doap

ROOT = Path(__file__).parents[1]
PACKAGE = Path(doap.__file__).parent


def found(pattern, name):
    """Return the first group of the first match of a pattern in a file of the project."""
    match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert match, f"{name}: expected {pattern}"
    return match[1]


def test_the_changelog_starts_with_this_version():
    assert found(r"^## (\S+)", "CHANGELOG.md") == doap.__version__


def test_citation_and_package_have_the_same_version_and_licence():
    assert found(r"^version: (\S+)$", "CITATION.cff") == doap.__version__
    assert found(r"^license: (\S+)$", "CITATION.cff") == found(r'^license = "(\S+)"$', "pyproject.toml")
    # The package reads its version from this file.
    assert found(r'^path = "(\S+)"$', "pyproject.toml") == "src/doap/__init__.py"


@pytest.mark.parametrize("name", ["photo.jpg", "print.jpg"])
def test_samples_are_small_and_state_their_licence(name):
    samples = PACKAGE / "images" / "samples"
    assert (samples / name).stat().st_size < 150_000
    table = (samples / "README.md").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(f"| `{name}`") and "CC0 1.0" in line for line in table)


def test_the_package_is_small_enough_for_a_wheel():
    """The limit is 15 MB before compression, which hardly shrinks weights and photos."""
    assert sum(path.stat().st_size for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts) < 15e6


def test_constraints_pin_every_declared_dependency():
    needed = re.findall(r'"([A-Za-z0-9-]+)(?:\[\w+\])?>=', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    # tomli is for Python 3.10, which the pinned versions do not support.
    assert set(needed) - {"tomli"} <= set(pinned)


def test_the_house_in_contributing_has_the_layers_and_functions_of_the_package():
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    house = text[text.index("## The house in one minute") : text.index("`detectors` is below")]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in house.splitlines() if line.startswith("| `")]
    layers = found(r'(?s)containers = \["doap"\]\nlayers = \[\n(.*?)\n\]', "pyproject.toml").splitlines()
    assert [["__main__"], *rows] == [re.findall(r"\w+", layer) for layer in layers]
    steps = re.findall(r"`(doap\.[\w.]+)`", house)
    assert len(steps) == 17
    for step in steps:
        assert callable(pkgutil.resolve_name(step)), step
