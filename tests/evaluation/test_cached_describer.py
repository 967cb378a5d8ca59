"""A cached describer describes nothing twice and never returns descriptors of other pixels or weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, ShapeError
from doap.baselines import load_baseline, rootsift, teblid
from doap.describer import PatchDescriber, from_function
from doap.detectors import sift
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.descriptors import open_candidate
from doap.extractor import KeypointExtractor
from doap.images import extract_patches, frames_from_arrays
from doap.pipeline import describe_patches

PATCHES = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)


class Counting(PatchDescriber):
    """Describe patches by their mean, times a factor, and count the calls."""

    patch_size, dim, kind, extent = 32, 1, "real", 1.0

    def __init__(self, factor=1.0):
        self.factor, self.calls = factor, 0

    def describe_patches(self, patches):
        self.calls += 1
        return patches.mean(dim=(2, 3)) * self.factor


class FramesOnly:
    """A describer of frames that cannot describe patches."""

    dim, kind, extent = 1, "real", 1.0

    def __init__(self, factor=1.0):
        self.factor, self.calls = factor, 0

    def describe(self, image, frames):
        self.calls += 1
        return self.factor * (torch.from_numpy(frames[:, :, 2].sum(1, keepdims=True)) + float(image.mean()))

    def fingerprint(self):
        return "frames only"


@pytest.mark.parametrize("baseline", [rootsift, teblid])
def test_cached_descriptors_equal_computed_ones(tmp_path, baseline):
    first = CachedDescriber(open_candidate(baseline()), tmp_path / "cache")
    described = first.describe_patches(PATCHES)
    again = CachedDescriber(open_candidate(baseline()), tmp_path / "cache")
    assert torch.equal(again.describe_patches(PATCHES), described)
    assert described.dtype == again.describe_patches(PATCHES).dtype
    assert first.seconds > 0
    assert again.seconds == 0


def test_describer_is_called_once_for_the_same_patches(tmp_path):
    cached = CachedDescriber(open_candidate(Counting()), tmp_path)
    calls = cached.candidate.describer.calls
    for _ in range(3):
        cached.describe_patches(PATCHES)
    assert cached.candidate.describer.calls == calls + 1


def test_other_pixels_shapes_or_weights_miss_the_cache(tmp_path):
    one, other = (
        CachedDescriber(open_candidate(Counting()), tmp_path),
        CachedDescriber(open_candidate(Counting(2.0)), tmp_path),
    )
    assert one.fingerprint != other.fingerprint
    assert torch.equal(other.describe_patches(PATCHES), 2 * one.describe_patches(PATCHES))
    changed = PATCHES.copy()
    changed[0, 0, 0] ^= 1
    assert not torch.equal(one.describe_patches(changed), one.describe_patches(PATCHES))
    assert len(one.describe_patches(PATCHES[:2])) == 2


def test_patches_with_negative_strides_are_described():
    mirrored = PATCHES[:, :, ::-1]
    assert torch.equal(
        CachedDescriber(open_candidate(rootsift())).describe_patches(mirrored),
        CachedDescriber(open_candidate(rootsift())).describe_patches(mirrored.copy()),
    )


def test_without_a_cache_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CachedDescriber(open_candidate(Counting())).describe_patches(PATCHES)
    assert not list(tmp_path.iterdir())


def test_frames_are_described_from_their_patches():
    image = np.random.default_rng(1).integers(0, 256, (80, 90), dtype=np.uint8)
    frames = frames_from_arrays([[40, 30], [50, 45]], [12, 9], [20, 75])
    means = from_function(lambda patches: patches.mean(dim=3)[:, 0])
    expected = describe_patches(means, extract_patches(image, frames, 32))
    assert torch.equal(CachedDescriber(open_candidate(means)).describe(image, frames), expected)


def test_descriptors_of_frames_are_cached_by_the_pixels_the_frames_and_the_describer(tmp_path):
    image, frames = np.full((40, 40), 7, np.uint8), frames_from_arrays([[10, 20]], [4])
    cached, other = (CachedDescriber(open_candidate(FramesOnly(factor)), tmp_path) for factor in (1.0, 2.0))
    calls = cached.candidate.describer.calls
    assert [cached.describe(image, frames).item() for _ in range(3)] == [37, 37, 37]
    assert cached.candidate.describer.calls == calls + 1
    assert cached.describe(image + 1, frames).item() == 38
    assert cached.describe(image, frames + 1).item() == 39
    # The fingerprint is the same, but not the descriptors of the sample.
    assert other.describe(image, frames).item() == 74


def test_features_of_an_extractor_are_cached(tmp_path):
    image = np.random.default_rng(1).integers(0, 256, (80, 90), dtype=np.uint8)
    first, again = (CachedDescriber(open_candidate(KeypointExtractor(rootsift(), sift())), tmp_path) for _ in "ab")
    expected, found = first.extract(image, 12), again.extract(image, 12)
    assert (first.seconds > 0, again.seconds) == (True, 0)
    assert (len(found), found.image_size) == (12, (80, 90))
    assert np.array_equal(found.frames, expected.frames)
    assert np.array_equal(found.responses, expected.responses)
    assert torch.equal(found.descriptors, expected.descriptors)
    assert len(again.extract(image, 9)) == 9


def test_descriptors_of_no_patches_have_the_right_width():
    assert describe_patches(rootsift(), PATCHES[:0]).shape == (0, 128)
    assert describe_patches(teblid(), PATCHES[:0]).shape == (0, 32)


def test_chunk_size_does_not_change_the_descriptors(monkeypatch):
    whole = describe_patches(rootsift(), PATCHES)
    monkeypatch.setattr("doap.pipeline.PATCHES_AT_ONCE", 2)
    assert torch.equal(describe_patches(rootsift(), PATCHES), whole)


def test_patches_must_be_square():
    with pytest.raises(ShapeError, match="patches: expected"):
        CachedDescriber(open_candidate(from_function(lambda patches: patches.mean(dim=(2, 3))))).describe_patches(
            PATCHES[:, :, :16]
        )


def test_a_describer_that_fails_is_not_hidden():
    class Failing(Counting):
        def describe_patches(self, patches):
            raise ArgumentError("failing: always.")

    with pytest.raises(ArgumentError, match="failing: always"):
        CachedDescriber(open_candidate(Failing()))


@pytest.mark.data("baselines/SIFT+Boost-F.pth")
@pytest.mark.parametrize("file", ["SIFT+Boost-F.pth", "SIFT+Boost-B.pth"])
def test_featurebooster_is_cached_and_identified_by_its_weights(data_folder, tmp_path, file):
    image = np.random.default_rng(1).integers(0, 256, (80, 90), dtype=np.uint8)
    frames = frames_from_arrays([[40, 30], [50, 45]], [12, 9], [20, 75])
    boosted = load_baseline(data_folder / "baselines" / file)
    described = CachedDescriber(open_candidate(boosted), tmp_path).describe(image, frames)
    again = CachedDescriber(open_candidate(boosted), tmp_path)
    assert torch.equal(again.describe(image, frames), described)
    assert again.seconds == 0
    changed = load_baseline(data_folder / "baselines" / file)
    assert changed.fingerprint() == boosted.fingerprint()
    with torch.no_grad():
        changed._network.final_proj.bias.add_(1e-3)
    assert changed.fingerprint() != boosted.fingerprint()
