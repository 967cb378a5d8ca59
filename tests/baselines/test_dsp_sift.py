"""COLMAP's descriptors, which need the image and only describe COLMAP's keypoints."""

import cv2
import numpy as np
import pytest
import torch
from skimage import data

from doap._support.errors import ArgumentError
from doap.baselines import BASELINES, colmap_rootsift, dsp_sift, rootsift
from doap.detectors import colmap
from doap.detectors import sift as sift_detector
from doap.images import Pyramid, inside, read_grey
from doap.pipeline import extract
from oracles.photos import write_photo

PHOTO = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)[20:260, 120:420].copy()
pytest.importorskip("pycolmap")


@pytest.fixture(scope="module")
def frames():
    return colmap().detect(PHOTO)[0]


@pytest.mark.parametrize("name", ["colmap-sift", "dsp-sift"])
def test_frames_of_colmap_can_be_described_in_any_order(frames, name):
    baseline = BASELINES[name]().describer
    assert (baseline.name, baseline.dim, baseline.kind) == (name, 128, "real")
    described = baseline.describe(PHOTO, frames)
    assert described.shape == (len(frames), 128)
    torch.testing.assert_close(described.norm(dim=1), torch.ones(len(frames)))
    some = np.random.default_rng(0).permutation(len(frames))[:50]
    assert torch.equal(baseline.describe(Pyramid(PHOTO), frames[some]), described[torch.from_numpy(some)])
    assert baseline.describe(PHOTO, frames[:0]).shape == (0, 128)


@pytest.mark.parametrize("name", ["colmap-sift", "dsp-sift"])
def test_keypoints_detected_with_a_limit_are_described_even_if_absent_without_it(tmp_path, name):
    """COLMAP replaces a keypoint by a finer one nearby, unless it stops before that level."""
    photo, baseline = read_grey(write_photo(tmp_path / "photo.png", seed=3)), BASELINES[name]().describer
    largest, every = (colmap().detect(photo, limit)[0] for limit in (100, None))
    known = torch.tensor([frame.tobytes() in {one.tobytes() for one in every} for frame in largest])
    assert 90 < int(known.sum()) < 100
    described = baseline.describe(photo, largest)
    torch.testing.assert_close(described.norm(dim=1), torch.ones(100))
    assert torch.equal(described[known], baseline.describe(photo, largest[known.numpy()]))


def test_without_pooling_it_is_close_to_rootsift_of_the_same_patches(frames):
    whole = frames[inside(frames, *PHOTO.shape)]
    one, other = (baseline.describe(PHOTO, whole) for baseline in (colmap_rootsift().describer, rootsift()))
    # Measured: 0.977, and 0.62 for descriptors of different keypoints.
    assert (one * other).sum(dim=1).mean() > 0.96
    assert (one * other.roll(7, 0)).sum(dim=1).mean() < 0.8


def test_frames_of_another_detector_are_an_error(frames):
    with pytest.raises(ArgumentError):
        dsp_sift().describer.describe(PHOTO, sift_detector().detect(PHOTO, 10)[0])
    other_size = np.concatenate([frames[:3], frames[:2] * np.float32([1.5, 1.5, 1])])
    with pytest.raises(ArgumentError):
        dsp_sift().describer.describe(PHOTO, other_size)
    with pytest.raises(ArgumentError):
        extract(PHOTO, dsp_sift(), detector="sift")


def test_an_image_without_keypoints_gives_no_rows():
    assert len(extract(np.zeros((60, 80), np.uint8), dsp_sift(), detector=colmap())) == 0
    assert extract(np.zeros((5, 5), np.uint8), dsp_sift(), detector=colmap()).descriptors.shape == (0, 128)
