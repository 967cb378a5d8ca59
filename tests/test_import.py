"""`import doap` is quiet and light, and its public names are frozen here."""

import subprocess
import sys

import doap

HEAVY = [
    "torch",
    "cv2",
    "faiss",
    "kornia",
    "ray",
    "onnx",
    "onnxruntime",
    "matplotlib",
    "pycolmap",
    "pyarrow",
    "pydantic",
]


def python(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)


def test_import_prints_nothing_and_brings_nothing_heavy():
    ran = python(f"import sys, doap; sys.exit(','.join(set({HEAVY}) & set(sys.modules)) or 0)")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_losses_bring_torch_and_nothing_else_that_is_heavy():
    ran = python(
        f"import sys, doap; doap.ListwiseAP(); sys.exit(','.join((set({HEAVY}) - {{'torch'}}) & set(sys.modules)) or 0)"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_public_names_are_these():
    assert sorted(doap.__all__) == [
        "Descriptor",
        "DoapError",
        "Features",
        "Geometry",
        "HardestTriplet",
        "ListwiseAP",
        "Relation",
        "__version__",
        "extract",
        "load",
        "match",
        "verify",
    ]
    assert all(getattr(doap, name) is not None for name in doap.__all__)
    assert not hasattr(doap, "utils")
