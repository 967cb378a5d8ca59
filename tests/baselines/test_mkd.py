"""MKD with the whitening published by its authors, compared with kornia's own loader and with a plain projection."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from doap.baselines import load_baseline

pytest.importorskip("kornia")
from kornia.feature import MKDDescriptor


@pytest.fixture
def weights(data_folder):
    return data_folder / "baselines" / "mkd-concat-64.pth"


@pytest.fixture
def patches():
    return torch.rand(6, 1, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.data("baselines/mkd-concat-64.pth")
def test_mkd_is_a_describer_with_128_dimensions(weights):
    baseline = load_baseline(weights)
    assert (baseline.patch_size, baseline.dim, baseline.kind, baseline.extent) == (32, 128, "real", 1.0)
    assert baseline.describe_patches(torch.zeros(0, 1, 32, 32)).shape == (0, 128)
    flat = baseline.describe_patches(torch.full((2, 1, 32, 32), 0.4))
    assert flat.isfinite().all()
    assert not flat.requires_grad


@pytest.mark.data("baselines/mkd-concat-64.pth")
def test_mkd_equals_the_module_of_kornia_that_loads_the_same_file(weights, patches, tmp_path, monkeypatch):
    """kornia reads the file from the cache of torch.hub, where its download would be."""
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    (cache / weights.name).symlink_to(weights)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with torch.no_grad():
        expected = MKDDescriptor(patch_size=32, kernel_type="concat", whitening="pcawt", training_set="liberty")(
            patches
        )
    torch.testing.assert_close(load_baseline(weights).describe_patches(patches), expected, atol=1e-6, rtol=0)


@pytest.mark.data("baselines/mkd-concat-64.pth")
def test_whitening_is_a_projection_with_attenuated_eigenvalues(weights, patches):
    """Subtract the mean, project on each eigenvector, divide by the eigenvalue to the power 0.35, normalise."""
    model = torch.load(weights, map_location="cpu", weights_only=True)["liberty"]["pca"]
    mean, vectors, eigenvalues = (model[name].double().numpy() for name in ("mean", "eigvecs", "eigvals"))
    with torch.no_grad():
        embedded = MKDDescriptor(patch_size=32, kernel_type="concat", whitening=None)(patches).double().numpy()
    expected = np.zeros((len(patches), 128))
    for row, values in enumerate(embedded):
        for column in range(128):
            expected[row, column] = (values - mean) @ vectors[:, column] / eigenvalues[column] ** 0.35
        expected[row] /= np.sqrt((expected[row] ** 2).sum())
    np.testing.assert_allclose(load_baseline(weights).describe_patches(patches), expected, atol=1e-4)
