from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from doap._support.errors import ArgumentError
from doap._support.random_streams import stream
from doap.data.augment import change_light, degrade, flip_and_rotate, jitter_frames

PATCH = np.arange(9, dtype=np.uint8).reshape(3, 3)
EIGHT = {np.rot90(flipped, turns).tobytes() for flipped in (PATCH, PATCH[:, ::-1]) for turns in range(4)}


def copies(size: int) -> torch.Tensor:
    return torch.from_numpy(PATCH).repeat(size, 1, 1, 1)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(0, 99))
def test_a_group_is_turned_as_a_whole_into_one_of_eight(sizes: list[int], seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    turned = flip_and_rotate(copies(len(labels)), labels, stream(seed, "turn")).numpy()
    for group in range(len(sizes)):
        distinct = {patch.tobytes() for patch in turned[labels == group]}
        assert len(distinct) == 1
        assert distinct <= EIGHT


def test_all_eight_are_used_about_equally() -> None:
    turned = flip_and_rotate(copies(8000), np.arange(8000), stream(0, "turn")).numpy()
    distinct, times = np.unique(turned.reshape(8000, -1), axis=0, return_counts=True)
    assert {patch.tobytes() for patch in distinct} == EIGHT
    assert times.min() > 850
    assert times.max() < 1150


def test_patches_without_a_channel_are_turned_the_same_way() -> None:
    labels = np.arange(20)
    with_channel = flip_and_rotate(copies(20), labels, stream(0, "turn"))
    assert torch.equal(flip_and_rotate(copies(20)[:, 0], labels, stream(0, "turn")), with_channel[:, 0])


@pytest.mark.parametrize("change", [flip_and_rotate, change_light])
def test_the_input_is_not_changed(change: type[object]) -> None:
    patches = copies(20)
    change(patches, np.arange(20), stream(0, "turn"))  # type: ignore[call-arg]
    assert torch.equal(patches, copies(20))


@given(st.integers(0, 99), st.integers(1, 4))
def test_a_part_of_the_batch_is_changed_like_the_whole(seed: int, world: int) -> None:
    labels = np.repeat(np.arange(10), 3)
    for rank in range(world):
        own = np.flatnonzero(labels % world == rank)
        whole = flip_and_rotate(copies(30), labels, stream(seed, "turn"))
        assert torch.equal(flip_and_rotate(copies(len(own)), labels, stream(seed, "turn"), own), whole[own])
        whole = change_light(copies(30), labels, stream(seed, "light"), gain=0.5, offset=0.1)
        part = change_light(copies(len(own)), labels, stream(seed, "light"), own, gain=0.5, offset=0.1)
        assert torch.equal(part, whole[own])


def test_light_is_unchanged_by_default() -> None:
    assert torch.equal(change_light(copies(5), np.zeros(5, dtype=np.int64), stream(0, "light")), copies(5))


def test_light_stays_within_its_bounds_and_differs_within_a_group() -> None:
    grey = torch.full((200, 1, 2, 2), 100, dtype=torch.uint8)
    changed = change_light(grey, np.zeros(200, dtype=np.int64), stream(0, "light"), gain=0.2, offset=0.1)
    assert changed.min() >= 100 * 0.8 - 25.5 - 0.5
    assert changed.max() <= 100 * 1.2 + 25.5 + 0.5
    assert len(changed[:, 0, 0, 0].unique()) > 50


def test_light_is_clamped_and_does_not_wrap() -> None:
    white = torch.full((50, 1, 2, 2), 255, dtype=torch.uint8)
    assert change_light(white, np.arange(50), stream(0, "light"), gain=0.1).min() >= 229


def test_patches_and_labels_of_different_number_are_rejected() -> None:
    with pytest.raises(ArgumentError, match="each of 4 items"):
        flip_and_rotate(copies(3), np.arange(4), stream(0, "turn"))


def test_a_gain_above_one_is_rejected() -> None:
    with pytest.raises(ArgumentError, match="0 to 1"):
        change_light(copies(1), np.arange(1), stream(0, "light"), gain=1.5)


def smooth_patches(number: int) -> torch.Tensor:
    """Ramps, brighter to the right and downwards: the value of a pixel encodes its position."""
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    return (4 * x + 3 * y).to(torch.uint8).repeat(number, 1, 1, 1)


def test_frames_without_jitter_are_unchanged() -> None:
    patches = smooth_patches(5)
    assert torch.equal(jitter_frames(patches, np.arange(5), stream(0, "frames")), patches)


def test_frame_jitter_has_the_requested_deviations() -> None:
    """The centre of the ramp encodes the shift, its slopes the scale and the angle."""
    patches = smooth_patches(2000)
    moved = jitter_frames(patches, np.arange(2000), stream(0, "frames"), amount=0.05)[:, 0].double()
    inner = moved[:, 12:20, 12:20]
    down = (inner[:, -1] - inner[:, 0]).mean(1) / 7
    right = (inner[:, :, -1] - inner[:, :, 0]).mean(1) / 7
    # A shift by (x, y), in units of 16 pixels, changes the centre by 4·16·x + 3·16·y.
    assert float((inner.mean(dim=(1, 2)) - 108.5).std()) == pytest.approx(0.05 * 16 * 5, rel=0.05)
    assert float((down**2 + right**2).sqrt().log().std()) == pytest.approx(0.05, rel=0.1)
    assert float(torch.atan2(down, right).std()) == pytest.approx(0.05, rel=0.1)


def test_each_patch_of_a_group_is_jittered_independently() -> None:
    moved = jitter_frames(smooth_patches(6), np.zeros(6, np.int64), stream(0, "frames"), amount=0.1)
    assert len(moved.flatten(1).unique(dim=0)) == 6


def test_a_part_of_the_batch_is_jittered_like_the_whole() -> None:
    labels, own = np.repeat(np.arange(10), 3), np.array([1, 4, 5, 29])
    whole = jitter_frames(smooth_patches(30), labels, stream(3, "frames"), amount=0.1)
    assert torch.equal(jitter_frames(smooth_patches(4), labels, stream(3, "frames"), own, amount=0.1), whole[own])


def test_negative_jitter_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="amount: expected 0 or more, got -1"):
        jitter_frames(smooth_patches(1), np.arange(1), stream(0, "frames"), amount=-1)


def rough_patches(number: int, size: int = 32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(60, 196, (number, 1, size, size), np.uint8))


EACH_DEGRADATION = pytest.mark.parametrize(
    "amounts", [{"blur": 2.0}, {"noise": 0.05}, {"jpeg": 1.0}], ids=["blur", "noise", "jpeg"]
)


@EACH_DEGRADATION
def test_each_degradation_leaves_half_of_the_patches_unchanged(amounts: dict[str, float]) -> None:
    patches = rough_patches(400)
    degraded = degrade(patches, np.arange(400), stream(0, "degradation"), **amounts)
    # The weakest tenth of the JPEG compressions is not applied either.
    unchanged = 0.55 if "jpeg" in amounts else 0.5
    assert float((degraded == patches).flatten(1).all(dim=1).double().mean()) == pytest.approx(unchanged, abs=0.07)


@EACH_DEGRADATION
def test_a_part_of_the_batch_is_degraded_like_the_whole(amounts: dict[str, float]) -> None:
    labels, own = np.repeat(np.arange(10), 3), np.array([1, 4, 5, 28, 29])
    whole = degrade(rough_patches(30), labels, stream(3, "degradation"), **amounts)
    part = degrade(rough_patches(30)[own], labels, stream(3, "degradation"), own, **amounts)
    assert torch.equal(part, whole[own])


def test_blur_equals_opencv_and_reaches_its_maximum() -> None:
    patches = rough_patches(200)
    degraded = degrade(patches, np.arange(200), stream(1, "degradation"), blur=2.0)
    sigmas = 2.0 * (2 * stream(1, "degradation").random((200, 3)) - 1).clip(0)[:, 0]
    assert sigmas.max() > 1.9
    for patch, blurred, sigma in zip(patches[:, 0].numpy(), degraded[:, 0], sigmas, strict=True):
        if sigma > 0.3:
            kernel = np.float64(sigma)
            expected = cv2.GaussianBlur(patch.astype(np.float32), (13, 13), kernel, borderType=cv2.BORDER_REPLICATE)
            assert np.abs(blurred.numpy() - expected).max() <= 0.51


def test_noise_has_the_requested_deviation() -> None:
    flat = torch.full((300, 1, 32, 32), 128, dtype=torch.uint8)
    degraded = degrade(flat, np.arange(300), stream(2, "degradation"), noise=0.05).double()
    deviations = degraded.std(dim=(1, 2, 3))
    assert float(deviations.max()) == pytest.approx(0.05 * 255, rel=0.05)
    assert abs(float(degraded.mean()) - 128) < 0.1


@pytest.mark.parametrize("size", [32, 42])
def test_stronger_compression_changes_more(size: int) -> None:
    patches = rough_patches(300, size)
    little, much = (degrade(patches, np.arange(300), stream(0, "degradation"), jpeg=amount) for amount in (0.3, 1.0))
    changes = [(degraded.double() - patches).abs().mean() for degraded in (little, much)]
    assert 0 < changes[0] < changes[1] < 40


@pytest.mark.parametrize("amounts", [{"blur": -1}, {"noise": -0.1}, {"jpeg": 1.1}])
def test_degradation_beyond_its_range_is_an_error(amounts: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="blur, noise, jpeg: expected 0 or more"):
        degrade(rough_patches(1), np.arange(1), stream(0, "degradation"), **amounts)
