"""CachedDescriber with a memory: nothing is described twice, and nothing is remembered that other pixels or weights gave."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from doap.baselines import rootsift, teblid
from doap.describer import Describer, from_function
from doap.detectors import sift
from doap.errors import ShapeError
from doap.evaluation.cached_describer import CachedDescriber
from doap.images import extract_patches, frames_from_arrays
from doap.pipeline import describe_patches

PATCHES = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)


class Counting:
    """Means of patches, times a factor; counts how often it is asked."""

    patch_size, dim, kind, extent = 32, 1, "real", 1.0

    def __init__(self, factor=1.0):
        self.factor, self.calls = factor, 0

    def describe(self, patches):
        self.calls += 1
        return patches.mean(dim=(2, 3)) * self.factor


class OfImages(Counting):
    """Looks at the image itself."""

    detector = sift()

    def describe_frames(self, image, frames):
        self.calls += 1
        return torch.from_numpy(frames[:, :, 2].sum(1, keepdims=True)) + float(image.mean())


@pytest.mark.parametrize("peer", [rootsift, teblid])
def test_what_is_remembered_is_what_was_described(tmp_path, peer):
    first = CachedDescriber(peer(), tmp_path / "memory")
    described = first.patches(PATCHES)
    again = CachedDescriber(peer(), tmp_path / "memory")
    assert torch.equal(again.patches(PATCHES), described)
    assert described.dtype == again.patches(PATCHES).dtype
    assert first.seconds > 0
    assert again.seconds == 0


def test_describer_is_asked_once_for_the_same_patches(tmp_path):
    describing = CachedDescriber(Counting(), tmp_path)
    calls = describing.describer.calls
    for _ in range(3):
        describing.patches(PATCHES)
    assert describing.describer.calls == calls + 1


def test_other_pixels_shapes_or_weights_are_not_remembered(tmp_path):
    one, other = CachedDescriber(Counting(), tmp_path), CachedDescriber(Counting(2.0), tmp_path)
    assert one.fingerprint != other.fingerprint
    assert torch.equal(other.patches(PATCHES), 2 * one.patches(PATCHES))
    changed = PATCHES.copy()
    changed[0, 0, 0] ^= 1
    assert not torch.equal(one.patches(changed), one.patches(PATCHES))
    assert len(one.patches(PATCHES[:2])) == 2


def test_patches_mirrored_in_place_are_described():
    mirrored = PATCHES[:, :, ::-1]
    assert torch.equal(
        CachedDescriber(rootsift()).patches(mirrored), CachedDescriber(rootsift()).patches(mirrored.copy())
    )


def test_without_a_memory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CachedDescriber(Counting()).patches(PATCHES)
    assert not list(tmp_path.iterdir())


def test_frames_are_described_from_their_patches():
    image = np.random.default_rng(1).integers(0, 256, (80, 90), dtype=np.uint8)
    frames = frames_from_arrays([[40, 30], [50, 45]], [12, 9], [20, 75])
    means = from_function(lambda patches: patches.mean(dim=3)[:, 0])
    expected = describe_patches(means, extract_patches(image, frames, 32))
    assert torch.equal(CachedDescriber(means).frames(image, frames), expected)


def test_one_that_looks_at_images_is_given_them_and_remembered(tmp_path):
    image, frames = np.full((40, 40), 7, np.uint8), frames_from_arrays([[10, 20]], [4])
    describing = CachedDescriber(OfImages(), tmp_path)
    calls = describing.describer.calls
    assert describing.frames(image, frames).item() == 37
    assert describing.frames(image, frames).item() == 37
    assert describing.describer.calls == calls + 1
    assert describing.frames(image + 1, frames).item() == 38
    assert describing.frames(image, frames + 1).item() == 39


def test_no_patches_have_the_right_width():
    assert describe_patches(rootsift(), PATCHES[:0]).shape == (0, 128)
    assert describe_patches(teblid(), PATCHES[:0]).shape == (0, 32)


def test_any_number_at_a_time_gives_the_same(monkeypatch):
    whole = describe_patches(rootsift(), PATCHES)
    monkeypatch.setattr("doap.evaluation.cached_describer.PATCHES_AT_ONCE", 2)
    assert torch.equal(describe_patches(rootsift(), PATCHES), whole)


def test_patches_must_be_square():
    with pytest.raises(ShapeError, match="patches: expected"):
        CachedDescriber(from_function(lambda patches: patches.mean(dim=(2, 3)))).patches(PATCHES[:, :, :16])


def test_a_describer_is_known_by_its_face():
    assert isinstance(Counting(), Describer)
