"""Frames: signs of angles, radius and diameter, and transformation by homographies."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doap._support.errors import ShapeError
from doap.images import (
    angles,
    centres,
    extract_patches,
    frames_from_affine,
    frames_from_arrays,
    frames_from_keypoints,
    frames_from_lafs,
    scales,
    transform_frames,
)

# x' = 119 − y, y' = x: an image of height 120 turned clockwise by 90°.
TURN = np.array([[0, -1, 119], [1, 0, 0], [0, 0, 1]])


@st.composite
def frames(draw):
    values = draw(st.lists(st.floats(-10, 10), min_size=4, max_size=4))
    shape = np.reshape(values, (2, 2)) + 15 * np.eye(2)
    xy = draw(st.tuples(st.floats(0, 100), st.floats(0, 100)))
    return frames_from_affine([xy], shape[None])


@st.composite
def homographies(draw):
    values = draw(st.lists(st.floats(-0.3, 0.3), min_size=8, max_size=8))
    matrix = np.eye(3) + np.reshape([*values, 0], (3, 3))
    matrix[2, :2] *= 1e-3
    return matrix


def apply(homography, xy):
    x, y, w = homography @ [*xy, 1]
    return np.array([x / w, y / w])


def texture(seed=0):
    noise = np.random.default_rng(seed).random((120, 120), dtype=np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 3)
    return cv2.normalize(smooth, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def test_centre_scale_and_angle_are_recovered():
    xy, scale, angle = [[10, 20], [3.5, 4]], [5, 7], [30, -100]
    square = frames_from_arrays(xy, scale, angle)
    assert square.dtype == np.float32
    np.testing.assert_allclose(centres(square), xy)
    np.testing.assert_allclose(scales(square), scale, rtol=1e-6)
    np.testing.assert_allclose(angles(square), angle, rtol=1e-6)


def test_a_disc_of_the_size_of_a_keypoint_fills_the_expected_part_of_the_patch():
    image = np.zeros((200, 200), np.float32)
    cv2.circle(image, (100, 90), 40, 1.0, cv2.FILLED)
    patch = extract_patches(image, frames_from_keypoints([cv2.KeyPoint(100, 90, 80, -1)], magnification=2))[0]
    assert patch.mean() == pytest.approx(np.pi / 4 / 4, rel=0.05)
    assert patch[16, 9:23].min() > 0.9
    assert patch[16, :7].max() < 0.1


def test_sift_reports_the_diameter_of_a_blob_as_two_sigma():
    y, x = np.mgrid[:128, :128] - 64
    blob = np.round(255 * np.exp(-(x**2 + y**2) / (2 * 8**2))).astype(np.uint8)
    found = max(cv2.SIFT_create().detect(blob), key=lambda keypoint: keypoint.response)
    assert found.size == pytest.approx(16, rel=0.15)


@pytest.mark.parametrize("angle", [0, 30, 90, 200, 315])
def test_arrow_along_the_angle_of_a_keypoint_points_right_in_the_patch(angle):
    image = np.zeros((200, 200), np.float32)
    tip = 100 + 60 * np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    cv2.line(image, (100, 100), tuple(np.rint(tip).astype(int).tolist()), 1.0, 21)
    patch = extract_patches(image, frames_from_keypoints([cv2.KeyPoint(100, 100, 160, angle)], magnification=1))[0]
    assert patch[15:17, 18:26].min() > 0.8
    assert patch[:, :13].max() < 0.1


def test_sift_finds_the_same_patches_in_a_rotated_image():
    image = texture()
    turned = np.ascontiguousarray(np.rot90(image, -1))
    sift = cv2.SIFT_create()
    first = frames_from_keypoints([k for k in sift.detect(image) if k.size < 12])
    second = frames_from_keypoints(sift.detect(turned))
    expected = transform_frames(first, TURN)
    apart = np.abs(expected[:, None] - second[None]).max(axis=(2, 3))
    nearest, same = apart.argmin(axis=1), apart.min(axis=1) < 0.7
    # SIFT is not exactly equivariant. With the wrong sign, almost no patch would agree.
    assert same.mean() > 0.6
    patches0, patches1 = extract_patches(image, first[same]), extract_patches(turned, second[nearest[same]])
    assert np.median(np.abs(patches0.astype(int) - patches1)) <= 2


@given(frames(), homographies())
def test_homography_moves_a_frame_as_it_moves_points_near_its_centre(frame, homography):
    moved = transform_frames(frame, homography)[0].astype(float)
    xy, step = frame[0, :, 2].astype(float), 1e-4
    np.testing.assert_allclose(moved[:, 2], apply(homography, xy), rtol=1e-5, atol=1e-4)
    for column in range(2):
        side = frame[0, :, column].astype(float)
        slope = (apply(homography, xy + step * side) - apply(homography, xy - step * side)) / (2 * step)
        np.testing.assert_allclose(moved[:, column], slope, rtol=1e-4, atol=1e-4)


@given(frames(), homographies(), homographies())
def test_two_homographies_in_a_row_equal_their_product(frame, first, second):
    stepwise = transform_frames(transform_frames(frame, first), second)
    np.testing.assert_allclose(stepwise, transform_frames(frame, second @ first), rtol=1e-3, atol=1e-3)


@given(frames())
def test_the_scale_of_a_homography_does_not_matter(frame):
    np.testing.assert_allclose(transform_frames(frame, -3 * np.eye(3)), frame, rtol=1e-6)


def test_a_centre_mapped_to_infinity_gives_a_frame_that_is_not_finite():
    horizon = np.array([[1, 0, 0], [0, 1, 0], [0.1, 0, -1]])
    assert not np.isfinite(transform_frames(frames_from_arrays([[10, 5]], [3]), horizon)).all()


def test_no_keypoints_give_no_frames():
    nothing = np.zeros((0, 2, 3))
    for empty in (
        frames_from_keypoints([]),
        frames_from_arrays([], []),
        frames_from_affine([], np.zeros((0, 2, 2))),
        frames_from_lafs(nothing[None]),
        transform_frames(nothing, np.eye(3)),
    ):
        assert empty.shape == (0, 2, 3)
        assert empty.dtype == np.float32
    assert centres(nothing).shape == (0, 2)
    assert scales(nothing).shape == angles(nothing).shape == (0,)


def test_different_lengths_are_refused():
    with pytest.raises(ShapeError):
        frames_from_arrays([[1, 2]], [3, 4])
    with pytest.raises(ShapeError):
        frames_from_arrays([[1, 2]], [3], [0, 0])
    with pytest.raises(ShapeError):
        frames_from_lafs(np.zeros((2, 5, 2, 3)))


@pytest.mark.filterwarnings("ignore")
def test_kornia_frames_have_the_same_meaning():
    torch, feature = pytest.importorskip("torch"), pytest.importorskip("kornia.feature")
    image = cv2.GaussianBlur(texture(), (0, 0), 2).astype(np.float32)
    xy, scale, angle = [[50.0, 60.0], [64.0, 40.0]], [14.0, 10.0], [25.0, -70.0]
    # kornia's angles are counter-clockwise.
    turned = -torch.tensor(angle).reshape(1, 2, 1)
    lafs = feature.laf_from_center_scale_ori(torch.tensor([xy]), torch.tensor(scale).reshape(1, 2, 1, 1), turned)
    expected = frames_from_arrays(xy, scale, angle)
    np.testing.assert_allclose(frames_from_lafs(lafs), expected, atol=1e-4)
    patches = feature.extract_patches_simple(torch.from_numpy(image)[None, None], lafs, PS=32)
    # An offset of half a pixel would give more than 2. OpenCV 4 rounds coordinates to 1/32 of a pixel.
    assert np.abs(patches[0, :, 0].numpy() - extract_patches(image, expected)).mean() < 1
