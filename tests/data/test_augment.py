import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from doap._support.random_streams import stream
from doap.data.augment import Augmentation, degrade, flip_and_rotate, jitter_frames

PATCH = np.arange(9, dtype=np.uint8).reshape(3, 3)
EIGHT = {np.rot90(flipped, turns).tobytes() for flipped in (PATCH, PATCH[:, ::-1]) for turns in range(4)}
AMOUNTS = [{"flip_and_rotate": True}, {"frame_jitter": 0.1}, {"blur": 2.0}, {"noise": 0.05}, {"jpeg": 1.0}]
EACH = pytest.mark.parametrize("amounts", AMOUNTS, ids=lambda amounts: next(iter(amounts)))
EACH_DEGRADATION = pytest.mark.parametrize("amounts", AMOUNTS[2:], ids=lambda amounts: next(iter(amounts)))


def copies(size):
    return torch.from_numpy(PATCH).repeat(size, 1, 1, 1)


def ramps(number):
    """Patches brighter to the right and downwards: the value of a pixel encodes its position."""
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    return (4 * x + 3 * y).to(torch.uint8).repeat(number, 1, 1, 1)


def rough_patches(number, size=32):
    return torch.from_numpy(np.random.default_rng(0).integers(60, 196, (number, 1, size, size), np.uint8))


def turn(patches, labels, seed=0):
    return flip_and_rotate(patches, labels, np.arange(len(labels)), stream(seed, "turn"))


def degrade_all(patches, seed=0, **amounts):
    return degrade(patches, len(patches), np.arange(len(patches)), stream(seed, "degradation"), **amounts)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(0, 99))
def test_a_group_is_turned_as_a_whole_into_one_of_eight(sizes, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    turned = turn(copies(len(labels)), labels, seed).numpy()
    for group in range(len(sizes)):
        distinct = {patch.tobytes() for patch in turned[labels == group]}
        assert len(distinct) == 1
        assert distinct <= EIGHT


def test_all_eight_are_used_about_equally():
    turned = turn(copies(8000), np.arange(8000)).numpy()
    distinct, times = np.unique(turned.reshape(8000, -1), axis=0, return_counts=True)
    assert {patch.tobytes() for patch in distinct} == EIGHT
    assert 850 < times.min() <= times.max() < 1150


@EACH
def test_a_part_of_the_batch_is_changed_like_the_whole_and_the_input_is_not(amounts):
    augmentation = Augmentation(**{"flip_and_rotate": False, **amounts})
    labels, own, patches = np.repeat(np.arange(10), 3), np.array([1, 4, 5, 28, 29]), rough_patches(30)
    whole = augmentation.apply(patches, labels, np.arange(30), seed=3, step=7)
    assert torch.equal(augmentation.apply(patches[own], labels, own, seed=3, step=7), whole[own])
    assert torch.equal(patches, rough_patches(30))
    assert not torch.equal(whole, patches)


def test_frame_jitter_has_the_requested_deviations():
    """The centre of the ramp encodes the shift, its slopes the scale and the angle."""
    moved = jitter_frames(ramps(2000), 2000, np.arange(2000), stream(0, "frames"), 0.05)[:, 0].double()
    inner = moved[:, 12:20, 12:20]
    down = (inner[:, -1] - inner[:, 0]).mean(1) / 7
    right = (inner[:, :, -1] - inner[:, :, 0]).mean(1) / 7
    # A shift by (x, y), in units of 16 pixels, changes the centre by 4·16·x + 3·16·y.
    assert float((inner.mean(dim=(1, 2)) - 108.5).std()) == pytest.approx(0.05 * 16 * 5, rel=0.05)
    assert float((down**2 + right**2).sqrt().log().std()) == pytest.approx(0.05, rel=0.1)
    assert float(torch.atan2(down, right).std()) == pytest.approx(0.05, rel=0.1)


@EACH_DEGRADATION
def test_each_degradation_leaves_half_of_the_patches_unchanged(amounts):
    patches = rough_patches(400)
    degraded = degrade_all(patches, **amounts)
    # The weakest tenth of the JPEG compressions is not applied either.
    unchanged = 0.55 if "jpeg" in amounts else 0.5
    assert float((degraded == patches).flatten(1).all(dim=1).double().mean()) == pytest.approx(unchanged, abs=0.07)


def test_blur_equals_opencv_and_reaches_its_maximum():
    patches = rough_patches(200)
    degraded = degrade_all(patches, seed=1, blur=2.0)
    sigmas = 2.0 * (2 * stream(1, "degradation").random((200, 3)) - 1).clip(0)[:, 0]
    assert sigmas.max() > 1.9
    for patch, blurred, sigma in zip(patches[:, 0].numpy(), degraded[:, 0], sigmas, strict=True):
        if sigma > 0.3:
            kernel = np.float64(sigma)
            expected = cv2.GaussianBlur(patch.astype(np.float32), (13, 13), kernel, borderType=cv2.BORDER_REPLICATE)
            assert np.abs(blurred.numpy() - expected).max() <= 0.51


def test_noise_has_the_requested_deviation():
    flat = torch.full((300, 1, 32, 32), 128, dtype=torch.uint8)
    degraded = degrade_all(flat, seed=2, noise=0.05).double()
    assert float(degraded.std(dim=(1, 2, 3)).max()) == pytest.approx(0.05 * 255, rel=0.05)
    assert abs(float(degraded.mean()) - 128) < 0.1


@pytest.mark.parametrize("size", [32, 42])
def test_stronger_compression_changes_more(size):
    patches = rough_patches(300, size)
    changes = [(degrade_all(patches, jpeg=amount).double() - patches).abs().mean() for amount in (0.3, 1.0)]
    assert 0 < changes[0] < changes[1] < 40
