"""A cached describer describes nothing twice and never returns descriptors of other pixels or weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from doap.baselines import load_baseline, rootsift, teblid
from doap.describer import Describer, from_function
from doap.detectors import sift
from doap.errors import ArgumentError, ShapeError
from doap.evaluation.cached_describer import CachedDescriber
from doap.images import extract_patches, frames_from_arrays
from doap.pipeline import describe_patches

PATCHES = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)


class Counting:
    """Describe patches by their mean, times a factor, and count the calls."""

    patch_size, dim, kind, extent = 32, 1, "real", 1.0

    def __init__(self, factor=1.0):
        self.factor, self.calls = factor, 0

    def describe(self, patches):
        self.calls += 1
        return patches.mean(dim=(2, 3)) * self.factor


class ImageCounting(Counting):
    """Describe frames from the image itself."""

    detector = sift()

    def describe_frames(self, image, frames):
        self.calls += 1
        return torch.from_numpy(frames[:, :, 2].sum(1, keepdims=True)) + float(image.mean())


@pytest.mark.parametrize("baseline", [rootsift, teblid])
def test_cached_descriptors_equal_computed_ones(tmp_path, baseline):
    first = CachedDescriber(baseline(), tmp_path / "cache")
    described = first.describe_patches(PATCHES)
    again = CachedDescriber(baseline(), tmp_path / "cache")
    assert torch.equal(again.describe_patches(PATCHES), described)
    assert described.dtype == again.describe_patches(PATCHES).dtype
    assert first.seconds > 0
    assert again.seconds == 0


def test_describer_is_called_once_for_the_same_patches(tmp_path):
    cached = CachedDescriber(Counting(), tmp_path)
    calls = cached.describer.calls
    for _ in range(3):
        cached.describe_patches(PATCHES)
    assert cached.describer.calls == calls + 1


def test_other_pixels_shapes_or_weights_miss_the_cache(tmp_path):
    one, other = CachedDescriber(Counting(), tmp_path), CachedDescriber(Counting(2.0), tmp_path)
    assert one.fingerprint != other.fingerprint
    assert torch.equal(other.describe_patches(PATCHES), 2 * one.describe_patches(PATCHES))
    changed = PATCHES.copy()
    changed[0, 0, 0] ^= 1
    assert not torch.equal(one.describe_patches(changed), one.describe_patches(PATCHES))
    assert len(one.describe_patches(PATCHES[:2])) == 2


def test_patches_with_negative_strides_are_described():
    mirrored = PATCHES[:, :, ::-1]
    assert torch.equal(
        CachedDescriber(rootsift()).describe_patches(mirrored),
        CachedDescriber(rootsift()).describe_patches(mirrored.copy()),
    )


def test_without_a_cache_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CachedDescriber(Counting()).describe_patches(PATCHES)
    assert not list(tmp_path.iterdir())


def test_frames_are_described_from_their_patches():
    image = np.random.default_rng(1).integers(0, 256, (80, 90), dtype=np.uint8)
    frames = frames_from_arrays([[40, 30], [50, 45]], [12, 9], [20, 75])
    means = from_function(lambda patches: patches.mean(dim=3)[:, 0])
    expected = describe_patches(means, extract_patches(image, frames, 32))
    assert torch.equal(CachedDescriber(means).describe_frames(image, frames), expected)


def test_image_describers_get_the_image_and_are_cached(tmp_path):
    image, frames = np.full((40, 40), 7, np.uint8), frames_from_arrays([[10, 20]], [4])
    cached = CachedDescriber(ImageCounting(), tmp_path)
    calls = cached.describer.calls
    assert cached.describe_frames(image, frames).item() == 37
    assert cached.describe_frames(image, frames).item() == 37
    assert cached.describer.calls == calls + 1
    assert cached.describe_frames(image + 1, frames).item() == 38
    assert cached.describe_frames(image, frames + 1).item() == 39


def test_descriptors_of_no_patches_have_the_right_width():
    assert describe_patches(rootsift(), PATCHES[:0]).shape == (0, 128)
    assert describe_patches(teblid(), PATCHES[:0]).shape == (0, 32)


def test_chunk_size_does_not_change_the_descriptors(monkeypatch):
    whole = describe_patches(rootsift(), PATCHES)
    monkeypatch.setattr("doap.pipeline.PATCHES_AT_ONCE", 2)
    assert torch.equal(describe_patches(rootsift(), PATCHES), whole)


def test_patches_must_be_square():
    with pytest.raises(ShapeError, match="patches: expected"):
        CachedDescriber(from_function(lambda patches: patches.mean(dim=(2, 3)))).describe_patches(PATCHES[:, :, :16])


def test_an_object_with_the_right_attributes_is_a_describer():
    assert isinstance(Counting(), Describer)


class FramesOnly:
    """A describer of images that cannot describe patches, and has no detector and no fingerprint of its own."""

    patch_size, dim, kind, extent = 32, 1, "real", 1.0

    def __init__(self, factor=1.0):
        self.factor, self.calls = factor, 0

    def describe(self, patches):
        raise ArgumentError("frames only: expected an image.")

    def describe_frames(self, image, frames):
        self.calls += 1
        return self.factor * torch.from_numpy(frames[:, :, 2].sum(1, keepdims=True))


def test_a_describer_without_patches_is_cached(tmp_path):
    image, frames = np.full((40, 40), 7, np.uint8), frames_from_arrays([[10, 20]], [4])
    cached, other = CachedDescriber(FramesOnly(), tmp_path), CachedDescriber(FramesOnly(2.0), tmp_path)
    calls = cached.describer.calls
    assert [cached.describe_frames(image, frames).item() for _ in range(3)] == [30, 30, 30]
    assert cached.describer.calls == calls + 1
    assert other.fingerprint != cached.fingerprint
    assert other.describe_frames(image, frames).item() == 60


def test_a_describer_of_patches_that_fails_is_not_hidden():
    class Failing(Counting):
        def describe(self, patches):
            raise ArgumentError("failing: always.")

    with pytest.raises(ArgumentError, match="failing: always"):
        CachedDescriber(Failing())


@pytest.mark.data("baselines/SIFT+Boost-F.pth")
@pytest.mark.parametrize("file", ["SIFT+Boost-F.pth", "SIFT+Boost-B.pth"])
def test_featurebooster_is_cached_and_identified_by_its_weights(data_folder, tmp_path, file):
    image = np.random.default_rng(1).integers(0, 256, (80, 90), dtype=np.uint8)
    frames = frames_from_arrays([[40, 30], [50, 45]], [12, 9], [20, 75])
    boosted = load_baseline(data_folder / "baselines" / file)
    described = CachedDescriber(boosted, tmp_path).describe_frames(image, frames)
    again = CachedDescriber(boosted, tmp_path)
    assert torch.equal(again.describe_frames(image, frames), described)
    assert again.seconds == 0
    changed = load_baseline(data_folder / "baselines" / file)
    assert changed.fingerprint() == boosted.fingerprint()
    with torch.no_grad():
        changed._network.final_proj.bias.add_(1e-3)
    assert changed.fingerprint() != boosted.fingerprint()
