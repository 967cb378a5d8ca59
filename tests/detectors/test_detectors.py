"""Properties of all detectors in `DETECTORS`, and of some of them."""

import pickle

import cv2
import numpy as np
import pytest
from skimage import data

from doap._support.errors import ArgumentError, MissingExtra
from doap.baselines import rootsift
from doap.detectors import DETECTORS, affine, akaze, as_detector, orb, sift
from doap.images import angles, centres, inside, scales, transform_frames
from doap.images.frames import corresponding
from doap.pipeline import extract, match

ORIENTED = ("sift", "orb", "akaze", "affine")

PHOTO = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)
TOP, LEFT, HEIGHT, WIDTH = 20, 120, 240, 300
IMAGE = PHOTO[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH].copy()
# Transformed images, and the homographies to them.
VIEWS = {
    "shifted": (
        PHOTO[TOP + 17 : TOP + 17 + HEIGHT, LEFT + 23 : LEFT + 23 + WIDTH].copy(),
        np.array([[1, 0, -23], [0, 1, -17], [0, 0, 1.0]]),
    ),
    "turned": (np.rot90(IMAGE, -1).copy(), np.array([[0, -1, HEIGHT - 1], [1, 0, 0], [0, 0, 1.0]])),
    "doubled": (
        cv2.resize(IMAGE, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC),
        np.array([[2, 0, 0.5], [0, 2, 0.5], [0, 0, 1.0]]),
    ),
}


@pytest.fixture(scope="module")
def found():
    """Frames and responses of the image and of its views, by detector and view."""
    images = {"image": IMAGE} | {view: pixels for view, (pixels, _) in VIEWS.items()}
    return {
        name: {view: create().detect(pixels) for view, pixels in images.items()} for name, create in DETECTORS.items()
    }


def projected_and_detected(found, name, view):
    """Return the strongest keypoints projected into the view, and the keypoints detected there."""
    image, homography = VIEWS[view]
    expected = transform_frames(found[name]["image"][0][:150], homography)
    points = expected * np.float32([0, 0, 1])
    return expected[inside(points, *image.shape, margin=16)], found[name][view][0]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", DETECTORS)
def test_keypoints_follow_the_image(found, name, view):
    expected, detected = projected_and_detected(found, name, view)
    max_distance = 2.0 if view == "doubled" else 1.0
    assert len(expected) > 80
    assert corresponding(expected, detected, np.eye(3), max_distance).any(axis=1).mean() > 0.6
    # A detector that fires everywhere would pass the test above.
    elsewhere = expected + np.float32([[0, 0, 9.3], [0, 0, 7.1]])
    assert corresponding(elsewhere, detected, np.eye(3), max_distance).any(axis=1).mean() < 0.3


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ORIENTED)
def test_scale_and_orientation_follow_the_image(found, name, view):
    expected, detected = projected_and_detected(found, name, view)
    same = corresponding(expected, detected, np.eye(3), 2.0 if view == "doubled" else 1.0)
    same &= np.abs(np.log2(scales(expected)[:, None] / scales(detected))) < 0.35
    same &= np.abs((angles(expected)[:, None] - angles(detected) + 180) % 360 - 180) < 15
    assert same.any(axis=1).mean() > 0.5


@pytest.mark.parametrize("name", ["sift", "orb", "fast", "akaze"])
def test_keypoints_move_with_an_image_rotated_by_180_degrees(name):
    errors = errors_after_rotation(DETECTORS[name]())
    np.testing.assert_allclose(np.median(errors, axis=0), 0, atol=0.03)
    if name == "orb":
        assert np.quantile(np.abs(errors), 0.99) < 0.01


def test_sift_without_precise_upscaling_is_a_quarter_of_a_pixel_off():
    errors = errors_after_rotation(sift(precise=False))
    np.testing.assert_allclose(np.median(errors, axis=0), 0.25, atol=0.03)


def errors_after_rotation(detector):
    """Return half the distances (N, 2) between keypoints of an image and of the image rotated by 180°."""
    # Odd sizes, because the levels of ORB round them.
    image = IMAGE[:233, :291]
    frames, _ = detector.detect(image)
    turned, _ = detector.detect(np.rot90(image, 2).copy())
    back = np.float32([290, 232]) - centres(turned)
    apart = centres(frames)[:, None] - back
    another_scale = np.abs(np.log2(scales(frames)[:, None] / scales(turned))) > 0.1
    nearest = (np.linalg.norm(apart, axis=2) + 100 * another_scale).argmin(axis=1)
    errors = apart[np.arange(len(frames)), nearest] / 2
    errors = errors[np.abs(errors).max(axis=1) < 2]
    assert len(errors) > 0.4 * len(frames)
    return errors


@pytest.mark.parametrize("name", DETECTORS)
def test_frames_are_finite_and_sorted_by_response(found, name):
    for frames, responses in found[name].values():
        assert (frames.dtype, responses.dtype) == (np.float32, np.float32)
        assert frames.shape == (len(responses), 2, 3)
        assert np.isfinite(frames).all()
        assert scales(frames).min() > 1
        assert (np.diff(responses) <= 0).all()


@pytest.mark.parametrize("name", [name for name in DETECTORS if name != "colmap-default"])
def test_max_keypoints_returns_the_strongest(found, name):
    frames, responses = DETECTORS[name]().detect(IMAGE, 40)
    everything = found[name]["image"]
    assert np.array_equal(responses, everything[1][:40])
    np.testing.assert_allclose(frames, everything[0][:40], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", DETECTORS)
def test_same_image_gives_the_same_frames(found, name):
    # Pickled, as for another process.
    again = pickle.loads(pickle.dumps(DETECTORS[name]())).detect(IMAGE)
    assert all(np.array_equal(one, other) for one, other in zip(again, found[name]["image"], strict=True))


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (1, 100), (100, 2), (3, 300), (60, 80)])
def test_black_image_gives_no_frames(name, size):
    frames, responses = DETECTORS[name]().detect(np.zeros(size, np.uint8))
    assert (frames.shape, responses.shape) == ((0, 2, 3), (0,))
    assert (frames.dtype, responses.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("name", DETECTORS)
def test_tiny_images_of_noise_give_finite_frames(name):
    random = np.random.default_rng(0)
    for height, width in [(1, 1), (1, 9), (12, 1), (2, 30), (3, 3), (7, 5), (4, 200), (31, 31), (40, 17)]:
        frames, _ = DETECTORS[name]().detect(random.integers(0, 256, (height, width), np.uint8))
        assert np.isfinite(frames).all()


def test_affine_frames_match_more_on_a_slanted_surface():
    """The image is compressed to 0.35 along a diagonal, as at a slant of 70°."""
    squeeze = np.array([[0.675, -0.325], [-0.325, 0.675]])
    homography = np.eye(3)
    homography[:2, :2], homography[:2, 2] = squeeze, [70, 80]
    blurred = cv2.GaussianBlur(IMAGE, (0, 0), 0.8)
    slanted = cv2.warpPerspective(blurred, homography, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REPLICATE)

    def correct(detector):
        image0, image1 = (
            extract(image, rootsift(), detector=detector, max_keypoints=300) for image in (IMAGE, slanted)
        )
        same = corresponding(image0.frames, image1.frames, homography)
        return same[tuple(match(image0, image1).indices.T)].sum()

    assert correct(affine()) > 2 * correct(sift())


def test_affine_frames_preserve_position_and_area(found):
    stretched = affine().detect(IMAGE)[0]
    circular = found["sift"]["image"][0]
    assert len(np.unique(centres(stretched), axis=0)) == len(np.unique(centres(circular), axis=0)) == len(stretched)
    same = corresponding(stretched, circular, np.eye(3), 1e-3)
    ratio = scales(stretched)[:, None] / scales(circular)
    assert same.any(axis=1).all()
    np.testing.assert_allclose(ratio[same], 1, rtol=1e-3)
    lengths = np.linalg.svd(stretched[:, :, :2], compute_uv=False)
    assert np.median(lengths[:, 0] / lengths[:, 1]) > 1.3


def test_an_opencv_without_contrib_is_reported(monkeypatch):
    monkeypatch.delattr(cv2.xfeatures2d, "AKAZE_create", raising=False)
    monkeypatch.delattr(cv2, "AKAZE_create", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install .*opencv-contrib-python"):
        akaze().detect(IMAGE)


def test_as_detector_takes_names_and_detectors():
    assert [as_detector(name).name for name in DETECTORS] == list(DETECTORS)
    detector = orb(threshold=10)
    assert as_detector(detector) is detector
    assert as_detector(None).name == "sift"
    with pytest.raises(ArgumentError):
        as_detector("surf")
