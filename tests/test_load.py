"""`doap.load`: every source a user may name, and the error for every one that cannot be loaded."""

import pickle

import pytest
import torch

import doap
from doap._support.errors import DataError
from doap.baselines import BASELINES
from doap.describer import Describer
from doap.descriptor import SHIPPED, Descriptor
from doap.extractor import Extractor, extract_sample
from doap.pipeline import as_extractor

CODE = """
def mean(patches):
    return patches.mean(dim=(2, 3))

def large(patches):
    return patches.flatten(1)[:, :4]

def nothing(patches):
    pass

def wide(patches):
    return patches.flatten(1)

large.patch_size = 64
large.extent = 1.5
large.ratio = 0.8
wide.extent = -2
number = 3
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


@pytest.mark.parametrize("name", [*SHIPPED, *BASELINES])
def test_a_name_loads_and_describes_equally_after_pickling(name):
    if own_keypoints := name in ("colmap-sift", "dsp-sift"):
        pytest.importorskip("pycolmap")
    found = doap.load(name, device="cpu")
    assert isinstance(found, Extractor if own_keypoints else Describer)
    assert found.extent == (1.5 if name == "rootsift-wide" else 1.0)
    received = pickle.loads(pickle.dumps(found))
    one, other = (extract_sample(as_extractor(either)) for either in (received, found))
    assert torch.equal(one.descriptors, other.descriptors)
    assert repr(received) == repr(found)


def test_a_file_loads_as_a_descriptor_on_the_given_device(tmp_path):
    path = Descriptor.build(dim=16).save(tmp_path / "a.safetensors")
    for source in (path, str(path)):
        descriptor = doap.load(source, device="cpu")
        assert isinstance(descriptor, Descriptor)
        assert next(descriptor.parameters()).device == torch.device("cpu")
        assert descriptor.dim == 16


@pytest.mark.parametrize("suffix", [".onnx", ".pth", ".npy", ".safetensors", ".x"])
def test_a_damaged_file_of_any_suffix_is_an_error_that_recommends_nothing_unsafe(tmp_path, suffix):
    (tmp_path / f"damaged{suffix}").write_text("nothing of the kind")
    with pytest.raises(DataError) as raised:
        doap.load(tmp_path / f"damaged{suffix}")
    assert "weights_only" not in str(raised.value)


def test_a_function_loads_from_a_file_or_a_module(code, monkeypatch):
    assert doap.load(f"{code}:mean").describe_patches(torch.ones(2, 1, 32, 32)).tolist() == [[1.0], [1.0]]
    large = doap.load(f"{code}:large")
    assert (large.patch_size, large.extent, large.ratio) == (64, 1.5, 0.8)
    monkeypatch.syspath_prepend(code.parent)
    assert doap.load("own:mean").dim == 1


@pytest.mark.parametrize(
    "source",
    [
        "{code}:number",
        "{code}:absent",
        "{code}x.py:mean",
        "no_such_module:mean",
        ":mean",
        "{code}:nothing",
        "{code}:wide",
        "{broken}:mean",
        "no-such-baseline",
        "none.safetensors",
    ],
)
def test_a_source_that_cannot_be_loaded_is_an_error(code, source):
    broken = code.with_name("broken.py")
    broken.write_text("1 / 0")
    with pytest.raises(DataError):
        doap.load(source.format(code=code, broken=broken))
