"""The C++ example compiles, runs, and agrees with Python."""

import os
import shutil
import subprocess
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.export.onnx import write_onnx
from doap.images import centres, frames_from_keypoints, read_grey
from oracles.photos import write_photo

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpp"
# Folders of the headers; the library itself is in the Python wheel.
HEADERS = [
    *filter(None, [os.environ.get("ONNXRUNTIME_INCLUDE")]),
    "/usr/include/onnxruntime",
    "/usr/local/include/onnxruntime",
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The example, built with its CMake file."""
    onnxruntime = pytest.importorskip("onnxruntime")
    include = next((path for path in HEADERS if Path(path, "onnxruntime_cxx_api.h").is_file()), None)
    library = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"), None)
    if include is None or library is None:
        pytest.skip("ONNX Runtime's C++ headers (libonnxruntime-dev, or ONNXRUNTIME_INCLUDE) or its library not found")
    if not shutil.which("g++") or not shutil.which("cmake"):
        pytest.skip("no g++ or cmake")
    folder = tmp_path_factory.mktemp("cpp")
    values = {"ONNXRUNTIME_INCLUDE": include, "ONNXRUNTIME_LIBRARY": library, "CMAKE_CXX_FLAGS": "-Werror"}
    options = [f"-D{name}={value}" for name, value in values.items()]
    configured = subprocess.run(["cmake", "-S", EXAMPLE, "-B", folder, *options], capture_output=True, text=True)
    if "OpenCVConfig.cmake" in configured.stderr:
        pytest.skip("OpenCV's C++ headers (libopencv-dev) not found")
    assert configured.returncode == 0, configured.stderr
    built = subprocess.run(["cmake", "--build", folder], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "describe"


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photos") / "photo.png", seed=5, height=241, width=320)


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", ["doap-128", "doap-256bit"])
def test_descriptors_agree_with_python(program, photo, tmp_path, name):
    """Compare keypoint by keypoint. Versions of OpenCV differ by a grey level in blurring and sampling."""
    descriptor = Descriptor.load(name)
    ran = run(program, photo, write_onnx(descriptor, tmp_path / f"{name}.onnx").out)
    assert (ran.returncode, ran.stderr) == (0, "")
    table = np.loadtxt(ran.stdout.splitlines(), dtype=np.float32)
    keypoints = [cv2.KeyPoint(*map(float, row)) for row in table[:, :4]]
    frames = frames_from_keypoints(keypoints)
    expected = descriptor.describe(read_grey(photo), frames)
    assert table[:, 4:].shape == expected.shape
    assert len(table) > 150
    if descriptor.kind == "real":
        cosines = (torch.from_numpy(table[:, 4:]) * expected).sum(dim=1)
        assert cosines.median() > 0.999
        assert cosines.quantile(0.01) > 0.99
    else:
        differ = np.unpackbits(table[:, 4:].astype(np.uint8) ^ expected.numpy(), axis=1).sum(axis=1)
        assert np.median(differ) <= 3
    # Keypoints depend on the version of OpenCV: older ones lack the precise upscaling.
    found = np.concatenate([centres(sift(precise=precise).detect(read_grey(photo))[0]) for precise in (False, True)])
    nearest = np.linalg.norm(centres(frames)[:, None] - found, axis=2).min(axis=1)
    assert np.quantile(nearest, 0.95) < 0.1


def test_errors_are_one_line(program, photo, tmp_path):
    assert run(program).returncode == 2
    ran = run(program, photo, tmp_path / "none.onnx")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("describe: ")
