"""Every tensor follows the device: describing, extracting and matching, on CPU and CUDA."""

import numpy as np
import pytest
import torch

import doap
from doap._support.device import multiplies_bfloat16, resolve_device
from doap.descriptor import SHIPPED, Descriptor
from doap.images import read_grey
from oracles.photos import write_photo

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_CUDA])]
pytestmark = pytest.mark.parametrize("device", DEVICES)
EACH = pytest.mark.parametrize("name", SHIPPED)


@pytest.fixture(scope="module")
def grey(tmp_path_factory):
    return read_grey(write_photo(tmp_path_factory.mktemp("photo") / "a.png", seed=0, height=240, width=320))


def patches(size=32):
    return torch.rand(300, 1, size, size, generator=torch.Generator().manual_seed(0))


def assert_equal_up_to_rounding(described, expected):
    """GPUs round differently: allow small differences, and one bit in a thousand."""
    if expected.dtype == torch.uint8:
        assert np.unpackbits((described.cpu() ^ expected).numpy()).mean() < 1e-3
    else:
        torch.testing.assert_close(described.cpu(), expected, atol=2e-3, rtol=0)


@EACH
def test_describe_runs_on_the_device_of_the_network(device, name):
    descriptor = doap.load(name, device=device, precision="float32")
    expected = Descriptor.load(name, precision="float32").describe_patches(patches())
    for given in (patches(), patches().to(resolve_device(device))):
        described = descriptor.describe_patches(given)
        assert described.device == resolve_device(device)
        assert_equal_up_to_rounding(described, expected)
    assert descriptor.describe_patches(patches()[:0]).device == resolve_device(device)


@EACH
@pytest.mark.parametrize("lowest", ["float32", "bfloat16"])
def test_auto_precision_follows_the_device_and_the_spec(device, name, lowest):
    automatic, exact = (doap.load(name, device=device, precision=one) for one in ("auto", "float32"))
    automatic.spec = automatic.spec.model_copy(update={"precision": lowest})
    equal = torch.equal(automatic.describe_patches(patches()), exact.describe_patches(patches()))
    assert equal != (lowest == "bfloat16" and multiplies_bfloat16(resolve_device(device)))


@EACH
def test_features_and_matches_are_those_of_the_cpu(device, name, grey):
    on_cpu, moved = (doap.load(name, device=one, precision="float32") for one in ("cpu", device))
    expected, features = (doap.extract(grey, one, max_keypoints=200) for one in (on_cpu, moved))
    assert features.descriptors.device == resolve_device(device)
    assert np.array_equal(features.frames, expected.frames)
    assert_equal_up_to_rounding(features.descriptors, expected.descriptors)
    matches = doap.match(features, features)
    assert (matches.indices[:, 0] == matches.indices[:, 1]).mean() > 0.99
    # The images may be on different devices, for example if one was read from a file.
    for pair in ((features, expected), (expected, features)):
        assert len(doap.match(*pair)) > 0.98 * len(matches)


def test_two_images_match_on_the_device(device, grey):
    found = doap.match_images(grey, grey[:, 40:].copy(), "doap-128", max_keypoints=300, device=device)
    assert found.features0.descriptors.device == resolve_device(device)
    assert found.geometry.inliers.sum() > 100


@EACH
def test_the_fingerprint_does_not_depend_on_the_device(device, name):
    assert doap.load(name, device=device).fingerprint() == Descriptor.load(name, device="cpu").fingerprint()
