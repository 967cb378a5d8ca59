"""FeatureBooster with the weights published by its authors, compared with a plain implementation in NumPy."""

import numpy as np
import pytest
import torch
from skimage import data

from doap.baselines import load_baseline, sift
from doap.detectors import sift as sift_detector
from doap.images import Pyramid

PHOTO = data.camera()[60:360, 100:460].copy()

pytestmark = pytest.mark.data("baselines/SIFT+Boost-F.pth")


@pytest.fixture(params=["SIFT+Boost-F.pth", "SIFT+Boost-B.pth"])
def file(request, data_folder):
    return data_folder / "baselines" / request.param


@pytest.fixture(scope="module")
def frames():
    return sift_detector().detect(PHOTO, 40)[0]


def boosted(state, descriptors, geometry):
    """Return the (N, D) outputs of the network, with one keypoint and one channel at a time in the attention."""

    def linear(name, rows):
        return rows @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def perceptron(name, rows, layers):
        for layer in range(layers):
            rows = linear(f"{name}.{2 * layer}", np.maximum(rows, 0) if layer else rows)
        return rows

    def layer_norm(name, rows):
        centred = rows - rows.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)
        return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]

    def attention(name, rows):
        """A mean of the values of all keypoints, weighted by the exponentials of their keys; queries gate it."""
        query, key, value = (linear(f"{name}.{part}", rows) for part in ("query", "key", "value"))
        gated = np.zeros_like(value)
        for channel in range(value.shape[1]):
            weighted = total = 0.0
            for other in range(len(rows)):
                weight = np.exp(key[other, channel])
                weighted += weight * value[other, channel]
                total += weight
            for keypoint in range(len(rows)):
                gated[keypoint, channel] = weighted / total / (1 + np.exp(-query[keypoint, channel]))
        return linear(f"{name}.proj", gated)

    encoded = descriptors + perceptron("denc.encoder", descriptors, 3) + perceptron("kenc.encoder", geometry, 5)
    rows = layer_norm("layer_norm", encoded)
    for layer in range(4):
        name = f"attn_proj.layers.{layer}"
        rows = layer_norm(f"{name}.attn.layer_norm", rows + attention(f"{name}.attn", rows))
        rows = layer_norm(f"{name}.ffn.layer_norm", rows + perceptron(f"{name}.ffn.mlp", rows, 2))
    return linear("final_proj", rows)


def expected_outputs(file, frames):
    """Compute unit SIFT descriptors and the geometry of each keypoint, and pass them through the plain network."""
    state = torch.load(file, map_location="cpu", weights_only=True)
    height, width = PHOTO.shape
    geometry = []
    for frame in frames.astype(np.float64):
        half_side, angle = np.hypot(frame[0, 0], frame[1, 0]), np.arctan2(frame[1, 0], frame[0, 0])
        x, y = (frame[0, 2] - width / 2) / (0.7 * width), (frame[1, 2] - height / 2) / (0.7 * width)
        geometry.append([x, y, half_side / 6, (2 * np.pi - angle) % (2 * np.pi)])
    descriptors = sift().describe(PHOTO, frames).double().numpy()
    return boosted({name: value.double().numpy() for name, value in state.items()}, descriptors, np.array(geometry))


def test_outputs_equal_a_plain_loop(file, frames):
    outputs = expected_outputs(file, frames)
    found = load_baseline(file).describe(PHOTO, frames).numpy()
    if file.name == "SIFT+Boost-F.pth":
        np.testing.assert_allclose(found, outputs / np.linalg.norm(outputs, axis=1, keepdims=True), atol=1e-3)
    else:
        bits = np.unpackbits(found, axis=1)
        # Rounding decides about outputs near 0.
        clear = np.abs(outputs) > 1e-3 * np.abs(outputs).max()
        assert clear.mean() > 0.95
        assert np.array_equal(bits[clear], (outputs > 0)[clear])


def test_an_image_and_its_pyramid_agree_and_no_keypoints_are_fine(file, frames):
    baseline = load_baseline(file)
    assert torch.equal(baseline.describe(Pyramid(PHOTO), frames), baseline.describe(PHOTO, frames))
    none = baseline.describe(PHOTO, frames[:0])
    assert none.shape == ((0, 128) if baseline.kind == "real" else (0, 32))
