"""Patches compared with images given by formulas, whose value is known at every sample."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doap._support.errors import ArgumentError, ShapeError
from doap.images import extract_patches, frames_from_affine, frames_from_arrays, inside, transform_frames
from doap.images.patches import _MAX_SIDE

SIDE = 240
CENTRE = (SIDE - 1) / 2


@dataclass
class Waves:
    """An image given by a sum of waves. `zoom` is the number of pixels per unit of the formula."""

    zoom: float = 1.0
    turn: float = 0.0

    def at(self, x, y):
        cos, sin = np.cos(np.radians(self.turn)), np.sin(np.radians(self.turn))
        x, y = (x - CENTRE) / self.zoom, (y - CENTRE) / self.zoom
        x, y = cos * x + sin * y, cos * y - sin * x
        return 128 + 40 * np.sin(0.11 * x + 0.05 * y) + 30 * np.cos(0.07 * y - 0.1 * x) + 20 * np.sin(0.13 * y)

    def image(self, dtype=np.float32):
        y, x = np.mgrid[:SIDE, :SIDE].astype(float)
        values = self.at(x, y)
        return np.round(values).astype(dtype) if dtype == np.uint8 else values.astype(dtype)

    def patch(self, frame, size):
        """Return the exact value of every sample."""
        patch = np.empty((size, size))
        for row in range(size):
            for column in range(size):
                u = [(2 * column + 1) / size - 1, (2 * row + 1) / size - 1, 1]
                patch[row, column] = self.at(*(frame.astype(float) @ u))
        return patch


def bilinear(image, x, y):
    """Interpolate one sample, with repeated border pixels."""
    height, width = image.shape
    x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
    left, top = int(x), int(y)
    right, bottom = min(left + 1, width - 1), min(top + 1, height - 1)
    above = image[top, left] * (1 - (x - left)) + image[top, right] * (x - left)
    below = image[bottom, left] * (1 - (x - left)) + image[bottom, right] * (x - left)
    return above * (1 - (y - top)) + below * (y - top)


@st.composite
def frames(draw, smallest=4.0, largest=40.0):
    angle, scale = draw(st.floats(-180, 180)), draw(st.floats(smallest, largest))
    centre = draw(st.tuples(st.floats(100, 140), st.floats(100, 140)))
    return frames_from_arrays([centre], [scale], [angle])


def whole(height, width):
    return frames_from_affine([[(width - 1) / 2, (height - 1) / 2]], np.diag([width / 2, height / 2])[None])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_identity_frame_gives_the_pixels_themselves(dtype):
    image = np.random.default_rng(0).integers(0, 256, (32, 32)).astype(dtype)
    patches = extract_patches(image, whole(32, 32))
    assert patches.dtype == dtype
    assert np.array_equal(patches[0], image)


def test_small_frames_are_sampled_like_by_a_simple_loop():
    rng = np.random.default_rng(1)
    image = rng.random((30, 40), dtype=np.float32)
    several = frames_from_affine(rng.uniform(-5, 45, (20, 2)), rng.uniform(-4, 4, (20, 2, 2)))
    size = 16
    u = (2 * np.arange(size) + 1) / size - 1
    expected = [
        [[bilinear(image, *(frame.astype(float) @ [right, down, 1])) for right in u] for down in u] for frame in several
    ]
    # cv2.remap may round positions to 1/32 of a pixel.
    np.testing.assert_allclose(extract_patches(image, several, size), expected, atol=1 / 32)


@settings(max_examples=30)
@given(frames(), st.sampled_from([np.uint8, np.float32]), st.sampled_from([24, 32]))
def test_patches_of_any_frame_follow_the_formula(frame, dtype, size):
    waves = Waves()
    patch = extract_patches(waves.image(dtype), frame, size)[0]
    assert np.abs(patch - waves.patch(frame[0], size)).max() < 3


@settings(max_examples=30)
@given(frames(largest=24), st.sampled_from([0.5, 1.0, 2.0]), st.floats(-180, 180))
def test_the_same_point_in_a_scaled_and_rotated_image_gives_the_same_patch(frame, zoom, turn):
    first, second = Waves(), Waves(zoom, turn)
    cos, sin = zoom * np.cos(np.radians(turn)), zoom * np.sin(np.radians(turn))
    matrix = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    matrix[:2, 2] = CENTRE - matrix[:2, :2] @ [CENTRE, CENTRE]
    moved = transform_frames(frame, matrix)
    patch0, patch1 = extract_patches(first.image(), frame)[0], extract_patches(second.image(), moved)[0]
    assert np.abs(patch0 - patch1).max() < 1.5


@settings(max_examples=30)
@given(frames(), st.integers(0, 3))
def test_rotations_by_90_degrees_do_not_change_patches(frame, quarters):
    image = Waves().image()
    turned = np.ascontiguousarray(np.rot90(image, -quarters))
    turn = np.linalg.matrix_power(np.array([[0, -1, SIDE - 1], [1, 0, 0], [0, 0, 1]]), quarters)
    patch0, patch1 = extract_patches(image, frame), extract_patches(turned, transform_frames(frame, turn))
    assert np.abs(patch0 - patch1).max() < 1.5


@given(st.integers(-20, 20), st.integers(-20, 20))
def test_a_shift_by_whole_pixels_does_not_change_small_patches(right, down):
    image = np.random.default_rng(2).integers(0, 256, (100, 100), dtype=np.uint8)
    frame = frames_from_arrays([[50.25, 50.5]], [14], [30])
    shifted = np.roll(image, (down, right), axis=(0, 1))
    moved = transform_frames(frame, [[1, 0, right], [0, 1, down], [0, 0, 1]])
    assert np.array_equal(extract_patches(shifted, moved), extract_patches(image, frame))


@pytest.mark.parametrize("scale", [10, 16, 19, 25, 40, 70, 100, 200])
def test_no_level_is_shifted(scale):
    # Blur, subsampling and bilinear interpolation preserve a ramp, so a shift of half a pixel changes it by 0.5.
    y, x = np.mgrid[:600, :601].astype(np.float32)
    frame = frames_from_arrays([[301.3, 299.6]], [scale])
    along = scale * ((2 * np.arange(32) + 1) / 32 - 1)
    for ramp, expected in ((x, 301.3 + along[None]), (y, 299.6 + along[:, None])):
        patch = extract_patches(ramp, frame)[0]
        assert np.abs(patch - expected).max() < max(1, scale / 16) / 20


@pytest.mark.parametrize("angle", [0, 17, 45])
@pytest.mark.parametrize("period", [1, 2])
def test_a_fine_checkerboard_is_flat_in_a_large_frame(angle, period):
    y, x = np.mgrid[:400, :400] // period
    board = (255 * ((x + y) % 2)).astype(np.uint8)
    patch = extract_patches(board, frames_from_arrays([[200, 200]], [16 * 4 * period], [angle]))[0]
    assert np.abs(patch.astype(float) - 127.5).max() < 4


def test_a_long_frame_is_not_aliased_along_its_longer_side():
    stripes = np.tile(np.array([0, 0, 255, 255], np.uint8), (200, 50))
    frame = frames_from_affine([[100, 100]], [[[60, 0], [0, 4]]])
    assert np.ptp(extract_patches(stripes, frame).astype(int)) < 8


@pytest.mark.parametrize("side", [200, 201, 202, 203])
def test_both_borders_are_treated_alike(side):
    image = Waves().image()[:side, :side]
    near = frames_from_affine([[20, 20]], [[[90, 0], [0, 90]]])
    # The same frame in the image rotated by 180°.
    far = transform_frames(near, [[-1, 0, side - 1], [0, -1, side - 1], [0, 0, 1]])
    patch0, patch1 = extract_patches(image, near), extract_patches(image[::-1, ::-1], far)
    assert np.abs(patch0 - patch1).max() < 4


def test_border_is_repeated_outside_the_image():
    image = np.zeros((50, 60), np.uint8)
    image[0, 0], image[-1, -1] = 100, 200
    far = frames_from_arrays([[-30, -30], [-1e7, -1e7], [90, 80]], [8, 8, 8])
    patches = extract_patches(image, far)
    assert [np.unique(patch).tolist() for patch in patches] == [[100], [100], [200]]


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (2, 3), (33, 7)])
def test_the_smallest_images_have_patches(shape):
    patches = extract_patches(np.full(shape, 9, np.uint8), frames_from_arrays([[0, 0], [3, 1]], [2, 500]))
    assert np.unique(patches) == [9]


def test_an_image_longer_than_the_limit_of_remap_is_refused():
    with pytest.raises(ArgumentError):
        extract_patches(np.zeros((2, _MAX_SIDE + 1), np.uint8), frames_from_arrays([[1, 1]], [1]))


def test_many_patches_are_in_the_order_of_their_frames():
    rng = np.random.default_rng(3)
    image = Waves().image()
    several = frames_from_arrays(rng.uniform(60, 180, (3000, 2)), rng.uniform(4, 60, 3000), rng.uniform(0, 360, 3000))
    together = extract_patches(image, several, 16)
    for index in rng.integers(0, 3000, 20):
        np.testing.assert_allclose(together[index], extract_patches(image, several[[index]], 16)[0], atol=1e-3)


def test_more_patches_than_the_limit_of_remap_are_extracted():
    along = np.linspace(0, SIDE - 1, _MAX_SIDE + 1000)
    ramp = np.broadcast_to(np.arange(SIDE, dtype=np.float32), (3, SIDE))
    patches = extract_patches(ramp, frames_from_arrays(np.stack([along, np.ones_like(along)], 1), 0 * along), size=1)
    np.testing.assert_allclose(patches[:, 0, 0], along, atol=0.02)


def test_image_is_not_changed_and_may_be_a_view():
    image = Waves().image(np.uint8)
    view, before = image[::2, ::-1], image.copy()
    frame = frames_from_arrays([[60, 60]], [40])
    assert np.array_equal(extract_patches(view, frame), extract_patches(view.copy(), frame))
    assert np.array_equal(image, before)


def test_no_frames_give_no_patches():
    patches = extract_patches(np.zeros((9, 9), np.uint8), np.zeros((0, 2, 3), np.float32), size=24)
    assert patches.shape == (0, 24, 24)
    assert patches.dtype == np.uint8


def test_invalid_arguments_are_refused():
    image, frame = np.zeros((9, 9), np.uint8), frames_from_arrays([[4, 4]], [2])
    with pytest.raises(ShapeError):
        extract_patches(np.zeros((9, 9, 3), np.uint8), frame)
    with pytest.raises(ArgumentError):
        extract_patches(image.astype(float), frame)
    with pytest.raises(ArgumentError):
        extract_patches(image[:0], frame)
    with pytest.raises(ShapeError):
        extract_patches(image, frame[0])
    with pytest.raises(ArgumentError):
        extract_patches(image, frame * np.nan)
    with pytest.raises(ArgumentError):
        extract_patches(image, frame, size=0)


def test_the_frame_of_the_whole_image_is_inside_and_a_larger_one_is_not():
    assert inside(whole(30, 50), 30, 50)
    assert not inside(whole(30, 50), 30, 50, margin=0.01)
    assert not inside(whole(30, 50) * 1.01, 30, 50)
    assert not inside(whole(30, 50) * np.nan, 30, 50)


@given(st.lists(st.floats(-60, 60), min_size=6, max_size=6), st.floats(-5, 5))
def test_inside_depends_on_the_four_corners(values, margin):
    frame = np.reshape(values, (1, 2, 3))
    corners = [frame[0] @ [right, down, 1] for right in (-1, 1) for down in (-1, 1)]
    clearance = min(min(x + 0.5, 49.5 - x, y + 0.5, 29.5 - y) for x, y in corners) - margin
    # Rounding may differ exactly at the border.
    assert inside(frame, 30, 50, margin) == (clearance >= 0) or abs(clearance) < 1e-9
