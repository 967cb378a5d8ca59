"""`import doap` is silent and fast, and its public names are frozen."""

import pytest

import doap
from oracles.interpreter import run_python

HEAVY = {
    *("torch", "cv2", "faiss", "kornia", "ray", "onnx"),
    *("onnxruntime", "matplotlib", "pycolmap", "pyarrow", "pydantic"),
}
PUBLIC = """
ArgumentError DataError Describer Descriptor DescriptorSpec DoapError Extractor Features Geometry
HardestTriplet ListwiseAP Localizer Matcher Matches MissingExtra PatchDescriber Relation ShapeError
__version__ compare evaluate export_descriptor extract extract_folder load match match_images train verify
write_colmap write_hloc write_opensfm
"""


def python(code):
    return run_python("-W", "error", "-c", code, fails=True)


def test_importing_doap_prints_nothing_and_imports_no_heavy_library():
    ran = python(f"import sys, doap; sys.exit(','.join({HEAVY} & set(sys.modules)) or 0)")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.slow
def test_losses_import_torch_and_pydantic_and_no_other_heavy_library():
    rest = HEAVY - {"torch", "pydantic"}
    ran = python(f"import sys, doap; doap.ListwiseAP(); sys.exit(','.join({rest} & set(sys.modules)) or 0)")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_public_names_are_frozen():
    assert sorted(doap.__all__) == PUBLIC.split()
    assert all(getattr(doap, name) is not None for name in doap.__all__)
    assert not hasattr(doap, "utils")
