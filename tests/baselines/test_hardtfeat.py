"""HardTFeat with the weights published by its authors."""

from __future__ import annotations

import pytest
import torch

from doap.baselines import load_baseline


@pytest.fixture
def weights(data_folder):
    return data_folder / "baselines" / "HardTFeat.pth"


@pytest.mark.data("baselines/HardTFeat.pth")
def test_hardtfeat_is_a_describer_of_wider_patches(weights):
    baseline = load_baseline(weights)
    assert (baseline.patch_size, baseline.dim, baseline.kind, baseline.extent) == (32, 128, "real", 1.5)
    assert baseline.describe_patches(torch.zeros(0, 1, 32, 32)).shape == (0, 128)
    assert not baseline.describe_patches(torch.rand(2, 1, 32, 32)).requires_grad


@pytest.mark.data("baselines/HardTFeat.pth")
def test_the_network_equals_a_layer_by_layer_oracle(weights):
    """The oracle only uses products and sums."""
    state = torch.load(weights, map_location="cpu", weights_only=True)["state_dict"]
    patches = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    flat = patches.flatten(1)
    mean = flat.sum(dim=1) / 1024
    deviation = (((flat - mean[:, None]) ** 2).sum(dim=1) / 1023).sqrt()
    values = (patches - mean[:, None, None, None]) / deviation[:, None, None, None]
    for layer, size in (("features.0", 7), ("features.3", 6), ("classifier.1", 8)):
        windows = values.unfold(2, size, 1).unfold(3, size, 1)
        sums = torch.einsum("nchwij,ocij->nohw", windows, state[f"{layer}.weight"])
        values = (sums + state[f"{layer}.bias"][:, None, None]).tanh()
        if layer == "features.0":
            values = values.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(4, 5))
    expected = values.flatten(1) / (values**2).sum(dim=(1, 2, 3)).sqrt()[:, None]
    torch.testing.assert_close(load_baseline(weights).describe_patches(patches), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.data("baselines/HardTFeat.pth")
def test_descriptors_are_invariant_to_brightness_and_contrast(weights):
    patches = torch.rand(8, 1, 32, 32)
    baseline = load_baseline(weights)
    torch.testing.assert_close(
        baseline.describe_patches(0.3 * patches + 0.5), baseline.describe_patches(patches), atol=1e-4, rtol=0
    )


@pytest.mark.data("baselines/HardTFeat.pth")
def test_descriptors_have_unit_length_and_flat_patches_are_finite(weights):
    patches = torch.cat([torch.rand(2, 1, 32, 32), torch.full((1, 1, 32, 32), 0.4), torch.zeros(1, 1, 32, 32)])
    described = load_baseline(weights).describe_patches(patches)
    torch.testing.assert_close(described.norm(dim=1), torch.ones(4))


@pytest.mark.data("baselines/HardTFeat.pth")
def test_a_patch_has_the_same_descriptor_in_any_batch(weights):
    patches, baseline = torch.rand(5, 1, 32, 32), load_baseline(weights)
    alone = torch.cat([baseline.describe_patches(patch[None]) for patch in patches])
    torch.testing.assert_close(baseline.describe_patches(patches), alone, atol=1e-5, rtol=0)
