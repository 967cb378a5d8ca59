"""The `doap doctor` command: a full report, also when libraries are broken."""

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest

import doap as library
from doap._support.errors import MissingExtra
from doap.baselines import BASELINES
from doap.cli.doctor import _attempt
from doap.detectors import DETECTORS
from oracles.interpreter import run_python


def run_with(folder, *arguments):
    """Run the command in a process that finds modules in a folder first."""
    path = os.pathsep.join([str(folder), str(Path(library.__file__).parents[1])])
    return run_python("-m", "doap", "doctor", *arguments, fails=True, PYTHONPATH=path)


def test_json_reports_what_works(doap):
    pytest.importorskip("kornia")
    ran = doap("doctor", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["baselines"] == dict.fromkeys(BASELINES, "works")
    assert set(found["detectors"]) == set(DETECTORS)
    assert set(found["versions"]) >= {"doap", "python", "torch", "numpy", "cv2"}
    assert found["opencv"]["contrib"] is True
    assert found["device"]["threads"] >= 1
    assert found["extras"]["kornia"] == {"kornia": version("kornia")}
    assert found["broken"] == []


def break_library(folder, module):
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")


def test_a_broken_library_is_reported_in_its_section(tmp_path):
    break_library(tmp_path, "torch")
    ran = run_with(tmp_path, "--json")
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    found = json.loads(ran.stdout)
    assert found["broken"] == ["torch"]
    assert found["versions"]["torch"] == "broken: ImportError: libGL.so.1: cannot open shared object file"
    assert found["device"].startswith("broken: ")


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
    found = json.loads(run_with(tmp_path, "--json").stdout)
    assert found["opencv"]["contrib"] is False
    assert {"opencv-python", "opencv-contrib-python"} <= set(found["opencv"]["wheels"])
    assert len(found["warnings"]) == 2


def test_a_missing_extra_is_not_reported_as_broken():
    def probe():
        raise MissingExtra("kornia", "kornia")

    assert _attempt(probe).startswith("missing: ")
