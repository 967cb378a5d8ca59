"""`Feature2D` with OpenCV's matchers, masks and conventions."""

import cv2
import numpy as np
import pytest
import torch

from doap import pipeline
from doap.baselines import rootsift, teblid
from doap.descriptor import Descriptor
from doap.export.opencv import Feature2D
from doap.images import read_grey
from oracles.photos import write_photo


def network():
    torch.manual_seed(0)
    return Descriptor.build(dim=32).eval()


DESCRIBERS = {"rootsift": rootsift, "teblid": teblid, "network": network}


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return read_grey(write_photo(tmp_path_factory.mktemp("photo") / "a.png", seed=0))


@pytest.fixture(scope="module")
def rotated(photo):
    """The photo rotated by 30° and downscaled by 0.8."""
    height, width = photo.shape
    return cv2.warpAffine(photo, cv2.getRotationMatrix2D((width / 2, height / 2), 30, 0.8), (width, height))


def values(point):
    return (*point.pt, point.size, point.angle, point.response)


@pytest.mark.parametrize("name", DESCRIBERS)
def test_detect_and_compute_equals_extract_and_detect_then_compute(photo, name):
    descriptor = DESCRIBERS[name]()
    features = Feature2D(descriptor, max_keypoints=100)
    keypoints, descriptors = features.detectAndCompute(photo, None)
    expected = pipeline.extract(photo, descriptor, max_keypoints=100)
    assert np.array_equal(descriptors, expected.descriptors)
    assert np.array_equal([point.pt for point in keypoints], expected.keypoints)
    assert np.array_equal(np.float32([point.response for point in keypoints]), expected.responses)
    found = features.detect(photo)
    assert [values(point) for point in found] == [values(point) for point in keypoints]
    returned, apart = features.compute(photo, found)
    assert returned == found
    # Size and angle are rounded to float32, so a sample may move to the next 1/32 of a pixel.
    assert (descriptors == apart).all(axis=1).mean() > 0.95
    binary = name == "teblid"
    assert (descriptors.shape[1], features.descriptorType()) == (
        features.descriptorSize(),
        cv2.CV_8U if binary else cv2.CV_32F,
    )
    assert features.defaultNorm() == (cv2.NORM_HAMMING if binary else cv2.NORM_L2)


def test_keypoints_equal_opencvs_sift(photo):
    """Positions, diameters and angles agree."""
    found = Feature2D(rootsift(), max_keypoints=10_000).detect(photo)
    expected = cv2.SIFT.create(contrastThreshold=0.02, enable_precise_upscale=True).detect(photo, None)
    assert len(found) == len(expected)
    key = {(point.pt, round(point.size, 3), round(point.angle, 2) % 360) for point in expected}
    assert {(point.pt, round(point.size, 3), round(point.angle, 2) % 360) for point in found} == key


def test_the_interface_equals_opencvs():
    expected = {name for name in dir(cv2.Feature2D) if not name.startswith("_")}
    provided = {name for name in dir(Feature2D) if not name.startswith("_")}
    # They store settings in OpenCV's files, or describe the algorithm.
    assert expected - provided == {"clear", "read", "save", "write", "empty", "getDefaultName"}


@pytest.mark.parametrize("name", DESCRIBERS)
def test_cross_checked_brute_force_equals_doap_match(photo, rotated, name):
    features = Feature2D(DESCRIBERS[name](), max_keypoints=300)
    (_, descriptors0), (_, descriptors1) = (features.detectAndCompute(image, None) for image in (photo, rotated))
    found = cv2.BFMatcher(features.defaultNorm(), crossCheck=True).match(descriptors0, descriptors1)
    expected = pipeline.match(
        *(pipeline.extract(image, features.descriptor, max_keypoints=300) for image in (photo, rotated))
    )
    # Also for binary descriptors with equal distances: both select the first neighbour.
    assert {(match.queryIdx, match.trainIdx) for match in found} == {tuple(pair) for pair in expected.indices.tolist()}
    assert len(expected) > 50


def test_keypoints_are_detected_within_the_mask(photo):
    mask = np.zeros_like(photo)
    mask[:, :160] = 255
    features = Feature2D(rootsift(), max_keypoints=50)
    everywhere = [values(point) for point in Feature2D(rootsift(), max_keypoints=10_000).detect(photo)]
    # The limit applies to keypoints within the mask.
    expected = [point for point in everywhere if round(point[0]) < 160][:50]
    assert [values(point) for point in features.detect(photo, mask)] == expected
    assert len(features.detectAndCompute(photo, mask)[1]) == 50


def test_without_keypoints_the_result_equals_opencvs():
    black = np.zeros((60, 80), np.uint8)
    features = Feature2D(rootsift())
    assert cv2.SIFT.create().detectAndCompute(black, None) == ((), None) == features.detectAndCompute(black, None)
    assert cv2.SIFT.create().compute(black, []) == ((), None) == features.compute(black, [])
    assert cv2.SIFT.create().detect(black, None) == () == features.detect(black, None)
