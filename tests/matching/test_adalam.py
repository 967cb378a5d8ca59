"""AdaLAM keeps matches that are consistent with their neighbours."""

import numpy as np
import pytest

import doap
from doap._support.errors import ArgumentError
from doap.images import transform_frames
from doap.matching import AdaLAM, NearestNeighbours
from doap.types import Features

pytest.importorskip("kornia")


def views(binary, outliers=150, inliers=250, seed=0):
    """Features of two images related by an affine map; the last ones have exchanged descriptors."""
    import torch

    random = np.random.default_rng(seed)
    count = inliers + outliers
    xy, scale = random.uniform(20, 480, (count, 2)), random.uniform(4, 12, count)
    frames = doap.images.frames_from_arrays(xy, scale, random.uniform(0, 360, count))
    moved = transform_frames(frames, np.array([[0.9, 0.3, 40], [-0.3, 0.9, 160], [0, 0, 1]]))
    if binary:
        descriptors = torch.from_numpy(random.integers(0, 256, (count, 32), np.uint8))
    else:
        descriptors = torch.nn.functional.normalize(torch.from_numpy(random.normal(size=(count, 64))).float())
    order = np.arange(count)
    order[inliers:] = np.roll(order[inliers:], outliers // 2)
    responses = np.ones(count, np.float32)
    return (
        Features(frames, responses, descriptors, (600, 600)),
        Features(moved, responses, descriptors[torch.from_numpy(order)], (600, 600)),
        inliers,
    )


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
def test_inconsistent_matches_are_dropped(binary):
    features0, features1, inliers = views(binary)
    everything = doap.match(features0, features1)
    assert len(everything) == len(features0)
    kept = doap.match(features0, features1, filter="adalam")
    right = kept.indices[:, 0] == kept.indices[:, 1]
    assert right.mean() > 0.97
    assert right.sum() > 0.9 * inliers
    # The result is a subset of the unfiltered matches, in the same order.
    scores = {tuple(pair): score for pair, score in zip(everything.indices.tolist(), everything.scores, strict=True)}
    assert [scores[tuple(pair)] for pair in kept.indices.tolist()] == kept.scores.tolist()
    assert (np.diff(kept.indices[:, 0]) > 0).all()
    np.testing.assert_array_equal(kept.indices, doap.match(features0, features1, filter="adalam").indices)


@pytest.mark.parametrize("count", [0, 1])
def test_images_with_few_keypoints_have_no_consistent_matches(count):
    features, _, _ = views(False)
    few = Features(features.frames[:count], features.responses[:count], features.descriptors[:count], (600, 600))
    assert len(AdaLAM(NearestNeighbours()).match(few, features)) == 0
    assert doap.match(features, few, filter="adalam").indices.shape == (0, 2)


def test_unknown_filters_are_refused():
    features, other, _ = views(False)
    with pytest.raises(ArgumentError):
        doap.match(features, other, filter="gms")
