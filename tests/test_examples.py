"""The examples run unchanged with only the extra `examples` installed, and improve a descriptor."""

import json
import re
import sys
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from oracles.interpreter import run_python

requirements = pytest.importorskip("packaging.requirements")
utils = pytest.importorskip("packaging.utils")
ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
RUN_WITHOUT = """
import json, runpy, sys
from importlib.machinery import PathFinder

missing, script = set(json.loads(sys.argv[1])), sys.argv[2]

class InstalledPackages:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in missing else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = InstalledPackages
sys.path[0] = script.rpartition("/")[0]
runpy.run_path(script, run_name="__main__")
"""
"""Program that runs a script as if some modules were not installed."""


@pytest.fixture
def not_in_extra():
    """Names of the installed modules that `pip install 'doap[examples]'` does not install."""
    # The metadata of an editable installation may be older than pyproject.toml.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requires = [*project["dependencies"], *project["optional-dependencies"]["examples"]]
    needed, pending = {"doap"}, [requirements.Requirement(one) for one in requires]
    while pending:
        one = pending.pop()
        name = utils.canonicalize_name(one.name)
        if name not in needed and (one.marker is None or one.marker.evaluate({"extra": ""})):
            needed.add(name)
            pending += [requirements.Requirement(further) for further in distribution(name).requires or []]
    modules = packages_distributions()
    return [name for name, owners in modules.items() if not needed & set(map(utils.canonicalize_name, owners))]


@pytest.mark.parametrize("name", ["custom_loop.py", "third_party_loss.py"])
def test_training_improves_held_out_points(name, tmp_path, not_in_extra):
    assert {"pytest", "sklearn", "polars"} & set(not_in_extra) == {"pytest", "polars"}
    words = ["-W", "error", "-c", RUN_WITHOUT, json.dumps(not_in_extra), (EXAMPLES / name).as_posix()]
    ran = run_python(*words, folder=tmp_path)
    assert ran.stderr == ""
    before, after = map(float, re.findall(r"0\.\d+", ran.stdout))
    assert after > 2 * before
