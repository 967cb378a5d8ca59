"""Pictures of matches: colours, positions at any image size, and visible photos."""

import numpy as np
import pytest

from doap.images import draw_matches
from doap.images.draw import BACKGROUND, COMMON, INLIER, MARGIN, MAX_LINES, REJECT, STRIP, _select_lines

NONE = np.zeros((0, 2))


def flat(height=200, width=300, grey=100):
    return np.full((height, width), grey, np.uint8)


def draw(image0, image1, points0=NONE, points1=NONE, inliers=(), title="a title", **options):
    """Draw matches between points of the same index."""
    matches = np.repeat(np.arange(len(inliers))[:, None], 2, axis=1)
    return draw_matches(
        image0, image1, np.array(points0), np.array(points1), matches, np.array(inliers, bool), title, **options
    )


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


@pytest.mark.parametrize(("inliers", "others"), [(5, 0), (150, 50), (900, 100), (3, 997), (0, 500), (0, 0)])
def test_at_most_200_matches_are_lines_and_their_shares_are_kept(inliers, others):
    mask = np.random.default_rng(0).permutation(np.arange(inliers + others) < inliers)
    line = _select_lines(mask)
    assert line.sum() <= MAX_LINES
    assert line.sum() >= min(inliers + others, MAX_LINES - 1)
    share = min(1, MAX_LINES / max(1, inliers + others))
    assert (line & mask).sum() == pytest.approx(share * inliers, abs=1)


def test_matches_without_a_line_are_points():
    points = np.column_stack([np.linspace(5, 295, 401), np.full(401, 100.0)])
    picture = draw(flat(), flat(), points, points, [True] * 401)
    for x in points[:, 0]:
        _, green, red = picture[STRIP + 100, MARGIN + round(x)].astype(int)
        assert green > red + 60


def close(pixel, colour):
    """Whether a pixel is nearer to this colour than to the other colours of matches."""
    distances = {one: np.abs(pixel.astype(int) - one).sum() for one in (INLIER, REJECT, COMMON)}
    return min(distances, key=distances.get) == colour


def test_inliers_that_another_descriptor_finds_are_blue():
    points = [(150.0, 50.0), (150.0, 100.0), (150.0, 150.0)]
    picture = draw(flat(), flat(), points, points, [True, True, False], common=np.array([True, False, True]))
    for y, colour in zip((50, 100, 150), (COMMON, INLIER, REJECT), strict=True):
        assert close(picture[STRIP + y, MARGIN + 150], colour)
