"""The `doap doctor` command: a full report, also when libraries are broken."""

import json
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import doap as library
from doap._support.errors import MissingExtra
from doap._support.opencv import complete_wheel
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
    assert found["warnings"] == []
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


def write_opencv(folder, code, *wheels):
    """Write a module `cv2` and the metadata of installed wheels of OpenCV 5."""
    (folder / "cv2").mkdir()
    (folder / "cv2" / "__init__.py").write_text(code)
    for name in wheels:
        information = folder / f"{name.replace('-', '_')}-5.0.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 5.0.0\n")


PLAIN = """
import types
__version__ = '5.0.0'
xfeatures2d = types.ModuleType('xfeatures2d')
def getBuildInformation(): return '  GUI:     NONE'
"""


def test_what_a_second_opencv_has_overwritten_is_reported_with_the_repair(tmp_path):
    write_opencv(tmp_path, PLAIN, "opencv-python-headless", "opencv-contrib-python")
    found = json.loads(run_with(tmp_path, "--json").stdout)
    assert found["opencv"]["contrib"] is False
    assert found["opencv"]["windows"] is False
    assert {"opencv-python-headless", "opencv-contrib-python"} <= set(found["opencv"]["wheels"])
    (warning,) = found["warnings"]
    assert "lost contrib and cv2.imshow" in warning
    assert "`pip install --force-reinstall --no-deps opencv-contrib-python==5.0.0`" in warning


def test_an_opencv_with_windows_on_a_server_is_replaced_by_one_without(tmp_path):
    code = "raise ImportError('libGL.so.1: cannot open shared object file: No such file or directory')"
    write_opencv(tmp_path, code, "opencv-python")
    found = json.loads(run_with(tmp_path, "--json").stdout)
    assert found["broken"] == ["cv2"]
    (warning,) = found["warnings"]
    assert re.search(r"Run `pip install .*opencv-(contrib-)?python-headless[=0-9.]*`", warning)


@pytest.mark.parametrize(
    ("installed", "contrib", "expected"),
    [
        ([], False, "opencv-python-headless"),
        ([], True, "opencv-contrib-python-headless"),
        (["opencv-python-headless"], True, "opencv-contrib-python-headless"),
        (["opencv-python"], True, "opencv-contrib-python"),
        (["opencv-python", "opencv-contrib-python-headless"], False, "opencv-contrib-python"),
        (["opencv-python", "opencv-python-headless"], False, "--force-reinstall --no-deps opencv-python==5.0.0"),
    ],
)
def test_the_wheel_to_install_keeps_what_all_installed_ones_have(tmp_path, monkeypatch, installed, contrib, expected):
    write_opencv(tmp_path, "", *installed)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert complete_wheel(contrib=contrib) == expected


def test_a_missing_extra_is_not_reported_as_broken():
    def probe():
        raise MissingExtra("kornia", "kornia")

    assert _attempt(probe).startswith("missing: ")
