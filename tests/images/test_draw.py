"""Pictures of matches: colours, positions at any image size, and visible photos."""

import numpy as np
import pytest

from doap.errors import ArgumentError, ShapeError
from doap.images import draw_matches
from doap.images.draw import BACKGROUND, MARGIN, STRIP

NONE = np.zeros((0, 2))


def flat(height=200, width=300, grey=100):
    return np.full((height, width), grey, np.uint8)


def draw(image0, image1, points0=NONE, points1=NONE, inliers=(), title="a title", **options):
    """Draw matches between points of the same index."""
    matches = np.repeat(np.arange(len(inliers))[:, None], 2, axis=1)
    return draw_matches(
        image0, image1, np.array(points0), np.array(points1), matches, np.array(inliers, bool), title, **options
    )


def colour_of_line(inlier):
    picture = draw(flat(), flat(), [(150.0, 100.0)], [(150.0, 100.0)], [inlier])
    return picture[STRIP + 100, MARGIN + 250].astype(int)


def test_inliers_are_green_and_outliers_faint_red():
    (blue, green, red), (blue1, green1, red1) = colour_of_line(True), colour_of_line(False)
    assert green > blue + 80
    assert green > red + 80
    assert red1 > blue1 + 30
    assert red1 > green1 + 30
    assert red1 - green1 < green - red


def test_inliers_are_drawn_over_outliers():
    points = [(150.0, 100.0), (150.0, 100.0)]
    for inliers in ([True, False], [False, True]):
        _, green, red = draw(flat(), flat(), points, points, inliers)[STRIP + 100, MARGIN + 250].astype(int)
        assert green > red + 80


def test_a_point_is_drawn_on_its_pixel_at_any_scale():
    small, large = flat(100, 150), flat(2000, 3000)
    # The same point of the scene: 20 times as far from the outer corner, which is half a pixel from the centre.
    points0, points1 = np.array([[30.0, 40.0]]), (np.array([[30.0, 40.0]]) + 0.5) * 20 - 0.5
    for photos, points in (((small, large), (points0, points1)), ((large, small), (points1, points0))):
        picture = draw(*photos, *points, longest_side=600)
        assert picture.shape == (STRIP + 400 + MARGIN, 3 * MARGIN + 1200, 3)
        for left in (MARGIN, 2 * MARGIN + 600):
            changed = (picture[STRIP:-MARGIN, left : left + 600] != picture[-MARGIN - 2, left + 2]).any(axis=2)
            y, x = np.argwhere(changed).mean(axis=0)
            assert (x, y) == pytest.approx((30.5 * 4 - 0.5, 40.5 * 4 - 0.5), abs=0.6)


def test_photos_are_visible_through_a_thousand_lines():
    random = np.random.default_rng(0)
    photo = random.integers(0, 256, (20, 30), np.uint8).repeat(20, axis=0).repeat(20, axis=1)
    points = random.uniform(0, 400, (1000, 2))
    picture = draw(photo, photo, points, points, [True] * 1000)
    drawn = picture[STRIP : STRIP + 400, MARGIN : MARGIN + 600].mean(axis=2)
    assert np.corrcoef(drawn.ravel(), photo.ravel())[0, 1] > 0.8


@pytest.mark.parametrize("sizes", [((200, 300), (300, 200)), ((1, 1), (50, 80)), ((1, 3000), (3000, 1))])
def test_photos_of_any_size_are_drawn_side_by_side(sizes):
    picture = draw(*(flat(*size) for size in sizes))
    longest = min(1200, max(max(size) for size in sizes))
    assert picture.shape[0] <= STRIP + longest + MARGIN
    assert picture.shape[1] <= max(480, 2 * longest + 3 * MARGIN)
    assert (picture[-1] == BACKGROUND).all()


def test_without_matches_the_photos_and_the_title_are_drawn():
    picture = draw(flat(), flat())
    assert (picture[:STRIP] != BACKGROUND).any()
    assert len(np.unique(picture[STRIP : STRIP + 200, MARGIN : MARGIN + 300])) == 1


@pytest.mark.parametrize("title", ["1,099 matches · 850 inliers · größe", "long " * 100, ""])
def test_any_title_fits(title):
    picture = draw(flat(), flat(), title=title)
    assert (picture[:STRIP, -MARGIN // 2 :] == BACKGROUND).all()


def test_inconsistent_arguments_are_refused():
    with pytest.raises(ShapeError, match=r"matches: expected \(M, 2\), got \(3,\)"):
        draw_matches(flat(), flat(), NONE, NONE, np.zeros(3, int), np.zeros(3, bool), "")
    with pytest.raises(ShapeError, match=r"inliers: expected \(0\), got \(3,\)"):
        draw_matches(flat(), flat(), NONE, NONE, np.zeros((0, 2), int), np.zeros(3, bool), "")
    with pytest.raises(ShapeError, match=r"image: expected \(height, width\), got \(9, 9, 3\)"):
        draw(flat(), np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(ArgumentError, match="longest_side: expected at least 1, got 0"):
        draw(flat(), flat(), longest_side=0)
