"""TFeat with the weights published by its authors."""

from __future__ import annotations

import pytest
import torch
from skimage import data

from doap.baselines import load_baseline
from doap.describer import Describer
from doap.detectors import sift as sift_detector
from doap.images import extract_patches, inside, transform_frames

PHOTO = data.camera()[100:400, 100:400].copy()


@pytest.fixture
def weights(data_folder):
    return data_folder / "weights_tfeat" / "tfeat-liberty.params"


def cut(frames):
    return torch.from_numpy(extract_patches(PHOTO, frames, 32)).unsqueeze(1) / 255


@pytest.mark.data("weights_tfeat")
def test_tfeat_is_a_describer_with_128_dimensions(weights):
    baseline: Describer = load_baseline(weights)
    assert (baseline.patch_size, baseline.dim, baseline.kind) == (32, 128, "real")
    assert baseline.describe_patches(torch.zeros(0, 1, 32, 32)).shape == (0, 128)
    flat = baseline.describe_patches(torch.full((2, 1, 32, 32), 0.4))
    assert flat.isfinite().all()
    assert not flat.requires_grad


@pytest.mark.data("weights_tfeat")
def test_the_network_equals_a_layer_by_layer_oracle(weights):
    """The oracle only uses products and sums."""
    state = torch.load(weights, map_location="cpu", weights_only=True)
    patches = torch.rand(3, 1, 32, 32)
    deviation = (patches.var(dim=(2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()
    layer_input = (patches - patches.mean(dim=(2, 3), keepdim=True)) / deviation
    for layer, size in (("features.1", 7), ("features.4", 6)):
        columns = layer_input.unfold(2, size, 1).unfold(3, size, 1)
        layer_input = torch.einsum("nchwij,ocij->nohw", columns, state[f"{layer}.weight"])
        layer_input = (layer_input + state[f"{layer}.bias"][:, None, None]).tanh()
        if layer == "features.1":
            layer_input = layer_input.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(4, 5))
    expected = (layer_input.flatten(1) @ state["descr.0.weight"].T + state["descr.0.bias"]).tanh()
    torch.testing.assert_close(load_baseline(weights).describe_patches(patches), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.data("weights_tfeat")
def test_descriptors_are_invariant_to_brightness_and_contrast(weights):
    patches = torch.rand(8, 1, 32, 32)
    baseline = load_baseline(weights)
    assert (baseline.describe_patches(patches) - baseline.describe_patches(0.3 * patches + 0.5)).norm(
        dim=1
    ).max() < 0.05


@pytest.mark.data("weights_tfeat")
def test_a_slightly_shifted_patch_is_nearest_to_itself(weights):
    frames = sift_detector().detect(PHOTO, 150)[0]
    frames = frames[inside(frames, *PHOTO.shape)]
    off = transform_frames(frames, [[1, 0, 0.6], [0, 1, -0.4], [0, 0, 1]])
    baseline = load_baseline(weights)
    nearest = torch.cdist(baseline.describe_patches(cut(frames)), baseline.describe_patches(cut(off))).argmin(dim=1)
    assert len(frames) > 80
    assert (nearest == torch.arange(len(frames))).float().mean() > 0.9
