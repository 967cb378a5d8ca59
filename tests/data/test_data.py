"""The public names of `doap.data`."""

import pytest

import doap.data
from oracles.interpreter import run_python


@pytest.mark.parametrize("name", doap.data.__all__)
def test_every_public_name_is_documented(name):
    assert getattr(doap.data, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'identify'"):
        _ = doap.data.identify


def test_importing_the_package_imports_no_heavy_library():
    program = "import sys, doap.data; print([name for name in ('cv2', 'pyarrow', 'torch') if name in sys.modules])"
    assert run_python("-c", program).stdout.strip() == "[]"
