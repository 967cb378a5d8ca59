"""`doap.load`: every source a user may name, and the error for every one that cannot be loaded."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

import doap
from doap._support.errors import ArgumentError, DataError
from doap.baselines import BASELINES, rootsift
from doap.describer import Describer
from doap.descriptor import SHIPPED, Descriptor, as_describer
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
wide.extent = -2
number = 3
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


@pytest.mark.parametrize("name", [*SHIPPED, *BASELINES])
def test_names_load_as_describers(name):
    if name in ("colmap-sift", "dsp-sift"):
        pytest.importorskip("pycolmap")
    describer = doap.load(name)
    assert isinstance(describer, Extractor if name in ("colmap-sift", "dsp-sift") else Describer)
    assert describer.extent == (1.5 if name == "rootsift-wide" else 1.0)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_describes_equally_after_pickling(name):
    if name in ("colmap-sift", "dsp-sift"):
        pytest.importorskip("pycolmap")
    baseline = doap.load(name)
    received = pickle.loads(pickle.dumps(baseline))
    one, other = (extract_sample(as_extractor(either)) for either in (received, baseline))
    assert torch.equal(one.descriptors, other.descriptors)
    assert repr(received) == repr(baseline)


def test_a_file_loads_as_a_descriptor_on_the_given_device(tmp_path):
    path = Descriptor.build(dim=16).save(tmp_path / "a.safetensors")
    for source in (path, str(path)):
        descriptor = doap.load(source, device="cpu")
        assert isinstance(descriptor, Descriptor)
        assert next(descriptor.parameters()).device == torch.device("cpu")
        assert descriptor.dim == 16


def test_the_suffix_selects_the_format_of_a_file(tmp_path):
    for suffix, words in (
        (".onnx", "ONNX"),
        (".pth", "not a file of weights"),
        (".safetensors", "safetensors"),
        (".x", "safetensors"),
    ):
        (tmp_path / f"damaged{suffix}").write_text("nothing of the kind")
        with pytest.raises(DataError, match=words) as raised:
            doap.load(tmp_path / f"damaged{suffix}")
        assert "weights_only" not in str(raised.value)


def test_a_function_loads_from_a_file_or_a_module(code, monkeypatch):
    assert doap.load(f"{code}:mean").describe_patches(torch.ones(2, 1, 32, 32)).tolist() == [[1.0], [1.0]]
    large = doap.load(f"{code}:large")
    assert (large.patch_size, large.extent) == (64, 1.5)
    monkeypatch.syspath_prepend(code.parent)
    assert doap.load("own:mean").dim == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{code}:number", "expected a function of the module, got 3"),
        ("{code}:absent", "expected a function of the module, got None"),
        ("{code}x.py:mean", r"the module cannot be imported \(FileNotFoundError"),
        ("no_such_module:mean", "ModuleNotFoundError"),
        (":mean", "the module cannot be imported"),
        ("{code}:nothing", "own.py: nothing: expected a tensor or array of floats, .* got NoneType"),
        ("{code}:wide", "own.py: extent: input should be greater than 0, got -2"),
        ("no-such-baseline", "expected one of .*sift.*no such name or file exists"),
        ("none.safetensors", "no such name or file exists"),
    ],
)
def test_a_source_that_does_not_exist_is_an_error(code, source, words):
    with pytest.raises(DataError, match=words):
        doap.load(source.format(code=code))


def test_the_error_of_broken_code_is_reported(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(DataError, match="ZeroDivisionError: division by zero"):
        doap.load(f"{tmp_path / 'broken.py'}:mean")


def test_only_weights_load_into_a_given_network():
    with pytest.raises(ArgumentError, match=r"network: expected a \*\.safetensors file to load into it, got 'sift'\."):
        doap.load("sift", network=nn.Identity())


def test_an_unknown_device_or_precision_is_an_error():
    for name in ("doap-128", "sift"):
        with pytest.raises(ArgumentError, match="device: expected auto"):
            doap.load(name, device="tpu")
    with pytest.raises(ArgumentError, match="precision: expected one of auto, float32, bfloat16, got 'int3'"):
        doap.load("doap-128", precision="int3")


def test_as_describer_loads_names_and_keeps_objects():
    describer = rootsift()
    assert as_describer(describer) is describer
    assert as_describer("sift").dim == 128
    assert isinstance(as_describer(SHIPPED["doap-128"], device="cpu"), Descriptor)
