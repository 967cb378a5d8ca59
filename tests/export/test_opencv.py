"""`Feature2D` with OpenCV's matchers, masks and conventions."""

import cv2
import numpy as np
import pytest
import torch

from doap import pipeline
from doap._support.errors import ArgumentError, ShapeError
from doap.baselines import rootsift, teblid
from doap.descriptor import Descriptor
from doap.detectors import orb
from doap.export.opencv import Feature2D
from doap.images import as_grey, read_grey
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


@pytest.mark.parametrize("name", DESCRIBERS)
def test_detect_and_compute_equals_extract(photo, name):
    descriptor = DESCRIBERS[name]()
    keypoints, descriptors = Feature2D(descriptor, max_keypoints=100).detectAndCompute(photo, None)
    features = pipeline.extract(photo, descriptor, max_keypoints=100)
    assert np.array_equal(descriptors, features.descriptors)
    assert np.array_equal([point.pt for point in keypoints], features.keypoints)
    assert np.array_equal(np.float32([point.response for point in keypoints]), features.responses)


@pytest.mark.parametrize("name", DESCRIBERS)
def test_detect_and_compute_equals_detect_then_compute(photo, name):
    features = Feature2D(DESCRIBERS[name](), max_keypoints=100)
    keypoints, together = features.detectAndCompute(photo, None)
    found = features.detect(photo)
    assert [values(point) for point in found] == [values(point) for point in keypoints]
    returned, apart = features.compute(photo, found)
    assert returned == found
    # Size and angle are rounded to float32, so a sample may move to the next 1/32 of a pixel.
    equal_rows = (together == apart).all(axis=1).mean()
    assert equal_rows > 0.95


def values(point):
    return (*point.pt, point.size, point.angle, point.response)


def test_keypoints_equal_opencvs_sift(photo):
    """Positions, diameters and angles agree."""
    found = Feature2D(rootsift(), max_keypoints=10_000).detect(photo)
    expected = cv2.SIFT.create(contrastThreshold=0.02, enable_precise_upscale=True).detect(photo, None)
    assert len(found) == len(expected)
    key = {(point.pt, round(point.size, 3), round(point.angle, 2) % 360) for point in expected}
    assert {(point.pt, round(point.size, 3), round(point.angle, 2) % 360) for point in found} == key


def test_keypoints_of_another_detector_are_described(photo):
    corners = cv2.ORB.create(50).detect(photo, None)
    keypoints, descriptors = Feature2D(rootsift()).compute(photo, corners)
    assert len(keypoints) == len(descriptors) == len(corners)


@pytest.mark.parametrize("name", DESCRIBERS)
def test_sizes_types_and_norms_describe_the_descriptors(photo, name):
    features = Feature2D(DESCRIBERS[name](), max_keypoints=20)
    _, descriptors = features.detectAndCompute(photo, None)
    assert descriptors.shape == (20, features.descriptorSize())
    binary = name == "teblid"
    assert descriptors.dtype == (np.uint8 if binary else np.float32)
    assert features.descriptorType() == (cv2.CV_8U if binary else cv2.CV_32F)
    assert features.defaultNorm() == (cv2.NORM_HAMMING if binary else cv2.NORM_L2)
    assert (features.empty(), features.getDefaultName()) == (False, "Feature2D.doap")


def test_the_interface_equals_opencvs():
    expected = {name for name in dir(cv2.Feature2D) if not name.startswith("_")}
    provided = {name for name in dir(Feature2D) if not name.startswith("_")}
    assert expected - provided == {"clear", "read", "save", "write"}  # they store settings in OpenCV's files


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


@pytest.mark.data("strecha")
def test_cross_checked_brute_force_equals_doap_match_on_real_photos(data_folder):
    folder = data_folder / "strecha" / "fountain-P11"
    photos = [cv2.resize(read_grey(folder / name), None, fx=0.3, fy=0.3) for name in ("0000.jpg", "0002.jpg")]
    features = Feature2D(rootsift(), max_keypoints=1000)
    (_, descriptors0), (_, descriptors1) = (features.detectAndCompute(photo, None) for photo in photos)
    found = cv2.BFMatcher(features.defaultNorm(), crossCheck=True).match(descriptors0, descriptors1)
    expected = pipeline.match(*(pipeline.extract(photo, rootsift(), max_keypoints=1000) for photo in photos))
    assert {(match.queryIdx, match.trainIdx) for match in found} == {tuple(pair) for pair in expected.indices.tolist()}
    assert len(expected) > 200


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("rootsift", {"algorithm": 1, "trees": 4}),  # KD-trees
        ("teblid", {"algorithm": 6, "table_number": 12, "key_size": 12, "multi_probe_level": 2}),  # LSH
    ],
)
def test_flann_finds_most_matches_of_brute_force(photo, rotated, name, index):
    features = Feature2D(DESCRIBERS[name](), max_keypoints=300)
    (_, descriptors0), (_, descriptors1) = (features.detectAndCompute(image, None) for image in (photo, rotated))
    exact = cv2.BFMatcher(features.defaultNorm()).match(descriptors0, descriptors1)
    approximate = cv2.FlannBasedMatcher(index, {"checks": 200}).knnMatch(descriptors0, descriptors1, k=1)
    same = [bool(near) and near[0].trainIdx == match.trainIdx for match, near in zip(exact, approximate, strict=True)]
    assert np.mean(same) > 0.8


def test_keypoints_are_detected_within_the_mask(photo):
    mask = np.zeros_like(photo)
    mask[:, :160] = 255
    features = Feature2D(rootsift(), max_keypoints=50)
    within = features.detect(photo, mask)
    # The limit applies to keypoints within the mask.
    assert len(within) == 50
    assert all(round(point.pt[0]) < 160 for point in within)
    everywhere = Feature2D(rootsift(), max_keypoints=10_000).detect(photo)
    assert [values(point) for point in within] == [values(point) for point in everywhere if round(point.pt[0]) < 160][
        :50
    ]
    assert features.detect(photo, np.zeros_like(photo)) == ()
    keypoints, descriptors = features.detectAndCompute(photo, mask)
    assert len(keypoints) == len(descriptors) == 50


def test_by_default_the_strongest_2048_keypoints_are_detected(tmp_path):
    large = read_grey(write_photo(tmp_path / "large.png", 0, 480, 640))
    found = Feature2D(rootsift()).detect(large)
    assert len(found) == 2048
    more = Feature2D(rootsift(), max_keypoints=2049).detect(large)
    assert [values(point) for point in found] == [values(point) for point in more[:2048]]


def test_without_keypoints_the_result_equals_opencvs():
    black = np.zeros((60, 80), np.uint8)
    features = Feature2D(rootsift())
    assert cv2.SIFT.create().detectAndCompute(black, None) == ((), None) == features.detectAndCompute(black, None)
    assert cv2.SIFT.create().compute(black, []) == ((), None) == features.compute(black, [])
    assert cv2.SIFT.create().detect(black, None) == () == features.detect(black, None)


def test_colour_images_are_converted_to_grey(photo):
    colour = np.dstack([photo, photo[:, ::-1], photo[::-1]])
    features = Feature2D(rootsift(), max_keypoints=50)
    expected = features.detectAndCompute(as_grey(colour), None)[1]
    assert np.array_equal(features.detectAndCompute(colour, None)[1], expected)
    with_alpha = np.dstack([colour, photo])
    assert np.array_equal(features.detectAndCompute(with_alpha, None)[1], expected)
    assert np.array_equal(features.detectAndCompute(photo[..., None])[1], features.detectAndCompute(photo)[1])


def test_bad_arguments_are_refused():
    features = Feature2D(rootsift())
    with pytest.raises(ArgumentError, match="image: expected a file, an array or an image of Pillow, got NoneType"):
        features.detect(None)
    with pytest.raises(ArgumentError, match="got float32"):
        features.detect(np.zeros((9, 9), np.float32))
    with pytest.raises(ArgumentError, match=r"expected at least one pixel, got 0×9"):
        features.detect(np.zeros((0, 9), np.uint8))
    with pytest.raises(ShapeError, match=r"expected \(H, W\), or \(H, W, 3\) .*, got \(9, 9, 2\)"):
        features.detect(np.zeros((9, 9, 2), np.uint8))
    with pytest.raises(ShapeError, match=r"mask: expected \(9, 9\), got \(3, 3\)"):
        features.detect(np.zeros((9, 9), np.uint8), np.zeros((3, 3), np.uint8))
    with pytest.raises(ArgumentError, match=r"Call compute\(image, keypoints\)"):
        features.detectAndCompute(np.zeros((9, 9), np.uint8), None, None, True)
    with pytest.raises(ArgumentError, match="max_keypoints: expected 1 or more, got 0"):
        Feature2D(rootsift(), max_keypoints=0)


def test_descriptor_and_detector_are_given_by_name(photo):
    named, objects = Feature2D("teblid", "orb", max_keypoints=50), Feature2D(teblid(), orb(), max_keypoints=50)
    assert np.array_equal(named.detectAndCompute(photo)[1], objects.detectAndCompute(photo)[1])
