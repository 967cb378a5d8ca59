"""The interface `Describer`, functions as describers, and fingerprints."""

import numpy as np
import pytest
import torch
from torch import nn

from doap._support.errors import ArgumentError, ShapeError
from doap.describer import PatchDescriber, from_function
from doap.descriptor import SHIPPED, Descriptor
from doap.images import extract_patches, frames_from_arrays, resize_frames


class Scaled(nn.Module):
    """A network without parameters."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, patches):
        return patches.flatten(1)[:, :8] * self.factor


class Wide(PatchDescriber):
    """Describes a patch by its corner pixels."""

    patch_size, dim, kind, extent = 8, 4, "real", 1.5

    def describe_patches(self, patches):
        return patches[:, 0, ::7, ::7].flatten(1)


def pixels(patches, dtype=torch.float32):
    return (255 * patches[:, 0, 0, :8]).to(dtype)


def fails(patches):
    raise ZeroDivisionError("no\nreason")


def test_the_base_class_cuts_the_patches_that_it_describes():
    image = np.random.default_rng(0).integers(0, 256, (60, 60), np.uint8)
    frames = frames_from_arrays([[30, 25], [20, 31]], [6, 8], [0, 30])
    patches = extract_patches(image, resize_frames(frames, 1.5), 8)
    expected = Wide().describe_patches(torch.from_numpy(patches)[:, None] / 255)
    assert torch.equal(Wide().describe(image, frames), expected)
    assert Wide().describe(image, frames[:0]).shape == (0, 4)


def test_a_function_of_patches_becomes_a_describer():
    signs = from_function(lambda patches: np.packbits(patches[:, 0, :8, 0].numpy() > 0.5, axis=1), name="bits")
    assert (signs.dim, signs.kind, signs.patch_size, signs.extent) == (8, "binary", 32, 1.0)
    assert signs.describe_patches(torch.ones(2, 1, 32, 32)).tolist() == [[255], [255]]
    layer = nn.Linear(1024, 4)
    assert (
        not from_function(lambda patches: layer(patches.flatten(1)))
        .describe_patches(torch.rand(3, 1, 32, 32))
        .requires_grad
    )


@pytest.mark.parametrize(
    "function",
    [
        fails,
        lambda patches: None,
        lambda patches: pixels(patches, torch.complex64),
        lambda patches: pixels(patches, torch.int64),
        lambda patches: np.array([[None]]),
        lambda patches: pixels(patches)[:, :0],
        lambda patches: patches.mean(),
        # These fail with more than one patch.
        lambda patches: patches[:1].flatten(1),
        lambda patches: pixels(patches, torch.uint8 if len(patches) == 1 else torch.float32),
        lambda patches: pixels(patches, torch.float32 if len(patches) == 1 else torch.uint8),
    ],
)
def test_a_function_without_descriptors_is_an_error(function):
    with pytest.raises((ArgumentError, ShapeError)):
        from_function(function, name="f").describe_patches(torch.zeros(3, 1, 32, 32))


@pytest.mark.parametrize("name", ["extent", "patch_size", "ratio"])
@pytest.mark.parametrize("value", [-1, 0, float("nan"), None, "wide"])
def test_a_function_with_an_impossible_setting_is_an_error(name, value):
    with pytest.raises(ArgumentError):
        from_function(pixels, **{name: value})


def test_a_fingerprint_depends_on_weights_and_spec_only():
    torch.manual_seed(0)
    one, other = Descriptor.build(dim=16), Descriptor.build(dim=16)
    assert one.fingerprint() == one.fingerprint() != other.fingerprint()
    other.load_state_dict(one.state_dict())
    assert one.fingerprint() == other.fingerprint()
    other.precision = "bfloat16"
    other.spec = other.spec.model_copy(update={"precision": "bfloat16"})
    assert one.fingerprint() == other.fingerprint()
    other.spec = other.spec.model_copy(update={"extent": 1.5})
    assert one.fingerprint() != other.fingerprint()


FINGERPRINTS = {
    "doap-128": "797975822edcc3ecf99946b95cbf4365f773b5d31273c960b32ca809bdb93f63",
    "doap-256bit": "0e99ce78fe0d881d063109e577b610b7322815838455da566afcb0256075db48",
    "doap-fast": "311dc803c4cf4e5eece637a269387b5d5244ab0e6c735bf0e802dab1567ffb40",
}


def test_fingerprints_of_the_shipped_weights_do_not_change():
    assert {name: Descriptor.load(name).fingerprint() for name in SHIPPED} == FINGERPRINTS


def test_the_fingerprint_of_own_code_depends_on_its_output_and_extent():
    assert len({Descriptor(Scaled(factor), patch_size=8).fingerprint() for factor in (1.0, 1.0, 2.0)}) == 2
    functions = [
        from_function(lambda patches, f=f: f * patches.flatten(1), extent=e) for f, e in ((1, 1), (2, 1), (1, 2))
    ]
    assert len({one.fingerprint() for one in functions}) == 3
