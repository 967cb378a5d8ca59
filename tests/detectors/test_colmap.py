"""COLMAP's keypoints. Properties of all detectors are tested in test_detectors.py."""

import cv2
import numpy as np
import pytest
from skimage import data

from doap.detectors import colmap, colmap_default, sift
from doap.detectors.colmap import colmap_sift
from doap.images import angles, centres, scales

pycolmap = pytest.importorskip("pycolmap")

PHOTO = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)[20:260, 120:420].copy()


def test_pooling_finds_the_same_keypoints():
    plain, pooled = colmap_sift(PHOTO), colmap_sift(PHOTO, scales=10)
    assert len(plain[0]) > 300
    assert np.array_equal(plain[0], pooled[0])
    assert not np.array_equal(plain[1], pooled[1])


def test_fewer_keypoints_are_the_largest_of_all():
    every, some = colmap_sift(PHOTO), colmap_sift(PHOTO, max_keypoints=100)
    assert 100 <= len(some[0]) < len(every[0]) / 2
    rows = [np.flatnonzero((every[0] == keypoint).all(axis=1))[0] for keypoint in some[0]]
    assert np.array_equal(every[1][rows], some[1])
    assert np.median(every[0][:, 2]) < some[0][:, 2].min()


def test_keypoints_agree_with_those_of_opencv():
    """Positions have no offset of half a pixel, patches are 12 σ wide, and angles are clockwise."""
    frames, others = colmap().detect(PHOTO)[0], sift().detect(PHOTO)[0]
    apart = centres(frames)[:, None] - centres(others)
    same = np.linalg.norm(apart, axis=2) < 1
    same &= np.abs(np.log2(scales(frames)[:, None] / scales(others))) < 0.2
    same &= np.abs((angles(frames)[:, None] - angles(others) + 180) % 360 - 180) < 10
    assert same.any(axis=1).mean() > 0.5
    np.testing.assert_allclose(np.median(apart[same], axis=0), 0, atol=0.02)


def test_default_keypoints_are_exactly_those_of_colmap():
    options = pycolmap.FeatureExtractionOptions(use_gpu=False, num_threads=1)
    options.sift.max_num_features = 200
    own, _ = pycolmap.FeatureExtractor.create(options, pycolmap.Device.cpu).extract_from_uint8_array(PHOTO)
    frames, _ = colmap_default().detect(PHOTO, 200)
    expected = sorted((round(point.x, 3), round(point.y, 3), round(point.compute_scale(), 3)) for point in own)
    found = zip(*(centres(frames) + 0.5).T, scales(frames) / 6, strict=True)
    np.testing.assert_allclose(sorted(tuple(map(float, one)) for one in found), expected, atol=2e-3)
    assert len(frames) > 200
