"""The `doap doctor` command: a full report, also when libraries are broken."""

import json
import re
from pathlib import Path

import pytest

from doap._support.errors import MissingExtra
from doap.baselines import BASELINES
from doap.detectors import DETECTORS
from doap.doctor import EXTRAS, _attempt
from oracles.interpreter import run_python

SECTIONS = {
    "versions",
    "platform",
    "opencv",
    "device",
    "instructions",
    "fast_bf16",
    "allocator",
    "extras",
    "weights",
    "baselines",
    "detectors",
    "broken",
    "warnings",
}


def doctor(*arguments, path=""):
    return run_python("-m", "doap", "doctor", *arguments, fails=True, PYTHONPATH=str(path), COLUMNS="100")


def test_json_reports_what_works():
    ran = doctor("--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert set(found) == SECTIONS
    assert found["baselines"] == dict.fromkeys(BASELINES, "works")
    assert set(found["detectors"]) == set(DETECTORS)
    assert set(found["versions"]) >= {"doap", "python", "torch", "numpy", "cv2"}
    assert found["opencv"]["contrib"] is True
    assert found["device"]["threads"] >= 1
    assert found["broken"] == []


def test_text_output_is_a_table():
    ran = doctor()
    assert ran.returncode == 0
    for words in ("versions", "torch", "contrib", "rootsift", "weights", "fast bf16"):
        assert words in ran.stdout


def break_library(folder, module):
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")


@pytest.mark.parametrize(("module", "part"), [("torch", "device"), ("numpy", "detectors")])
def test_a_broken_library_is_reported_in_its_section(tmp_path, module, part):
    break_library(tmp_path, module)
    ran = doctor("--json", path=tmp_path)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    found = json.loads(ran.stdout)
    assert set(found) == SECTIONS
    assert module in found["broken"]
    assert found["versions"][module] == "broken: ImportError: libGL.so.1: cannot open shared object file"
    assert "broken: " in json.dumps(found[part])


def test_text_output_names_a_broken_library(tmp_path):
    break_library(tmp_path, "cv2")
    ran = doctor(path=tmp_path)
    assert ran.returncode == 1
    assert "broken: ImportError: libGL.so.1" in ran.stdout
    assert "doap needs cv2" in ran.stdout


def test_an_opencv_that_hides_contrib_is_reported(tmp_path):
    """A second OpenCV wheel overwrites contrib: both are installed and xfeatures2d is empty."""
    (tmp_path / "cv2").mkdir()
    (tmp_path / "cv2" / "__init__.py").write_text(
        "import types\n__version__ = '5.0.0'\nxfeatures2d = types.ModuleType('xfeatures2d')"
    )
    for name in ("opencv_python", "opencv_contrib_python"):
        (tmp_path / f"{name}-5.0.0.dist-info").mkdir()
        (tmp_path / f"{name}-5.0.0.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 5.0.0\n"
        )
    found = json.loads(doctor("--json", path=tmp_path).stdout)
    assert found["opencv"]["contrib"] is False
    assert {"opencv-python", "opencv-contrib-python"} <= set(found["opencv"]["wheels"])
    wheels, contrib = found["warnings"]
    assert "overwrite each other" in wheels
    assert "contrib modules are missing" in contrib


def test_a_missing_extra_is_not_reported_as_broken():
    def probe():
        raise MissingExtra("kornia", "kornia")

    assert _attempt(probe) == "missing: kornia is not installed. Run `pip install 'doap[kornia]'`."


def test_every_extra_is_probed():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    for extra in set(extras) - {"all", "dev", "docs"}:
        needed = {re.split(r"[>\[]", requirement)[0] for requirement in extras[extra]}
        assert needed & set(EXTRAS[extra])
