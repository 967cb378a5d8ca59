"""OpenCV's descriptors of patches, compared with those of the photo the patches were cut from."""

from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest
import torch
from skimage import data

from doap._support.errors import MissingExtra
from doap.baselines import BASELINES, rootsift, rootsift_wide, sift
from doap.describer import PatchDescriber
from doap.detectors import sift as sift_detector
from doap.images import Pyramid, extract_patches, frames_from_arrays, frames_from_keypoints, inside, transform_frames

# Width in dimensions or bytes. Baselines that need the image are tested in test_dsp_sift.py.
WIDTHS = {"sift": 128, "rootsift": 128, "teblid": 32, "orb": 32, "akaze": 61}
REAL = ("sift", "rootsift")
EACH = pytest.mark.parametrize("name", WIDTHS)
PHOTO = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)
# Window of SIFT's keypoints divided by their size, from OpenCV's documentation.
SIFT_WINDOW = 6.75
MORE = cv2.xfeatures2d
# These ignore the keypoint's scale. With the side of the described region in pixels, and the keypoint size.
UNSCALED = {
    "orb": (27, 31, partial(cv2.ORB.create, nlevels=1, edgeThreshold=0)),
    "akaze": (40, 4, partial(MORE.AKAZE_create, nOctaves=1, nOctaveLayers=1)),
}


@pytest.fixture(scope="module")
def keypoints():
    return replace(sift_detector(0.01), ranks_by_size=False).keypoints(PHOTO)


@pytest.fixture(scope="module")
def patches(keypoints):
    return cut(frames_from_keypoints(keypoints[:60]))


def cut(frames, photo=PHOTO):
    return torch.from_numpy(extract_patches(photo, frames, 32)).unsqueeze(1) / 255


def whole(keypoints, frames, max_keypoints=120):
    """Select keypoints whose window, and the pixels that engines read around it, are within the photo."""
    kept = np.flatnonzero(inside(frames, *PHOTO.shape, margin=20))[:max_keypoints]
    return [keypoints[index] for index in kept], frames[kept]


def assert_alike(described, expected, closest):
    """Check that corresponding rows are closer than `closest` and other rows are not.

    The distance is the mean share of different bits, or 1 − cosine. Measured with OpenCV 5.0: 0.04 to 0.10 for bits,
    and 0.45 to 0.50 for other rows.
    """
    if described.dtype == torch.uint8:
        one, other = (np.unpackbits(np.asarray(codes), axis=1) for codes in (described, expected))
        apart, apart_from_others = (one != other).mean(), (one != np.roll(other, 7, axis=0)).mean()
    else:
        one, other = (torch.nn.functional.normalize(torch.as_tensor(rows)) for rows in (described, expected))
        apart, apart_from_others = (float(1 - (one * rows).sum(1).mean()) for rows in (other, other.roll(7, 0)))
    assert apart < closest
    assert apart_from_others > 4 * apart


def test_a_patch_is_described_by_teblid_as_the_photo_is_at_the_window_of_the_documentation(keypoints):
    engine = MORE.TEBLID_create(SIFT_WINDOW, MORE.TEBLID_SIZE_256_BITS)
    # It samples photos neither finer nor with less aliasing than its own patches: no others can agree.
    near = [point for point in keypoints if 0.7 < SIFT_WINDOW * point.size / 32 < 1.5]
    near, frames = whole(near, frames_from_keypoints(near, SIFT_WINDOW))
    assert len(near) > 80
    assert_alike(BASELINES["teblid"]().describe_patches(cut(frames)), engine.compute(PHOTO.copy(), near)[1], 0.12)


@pytest.mark.parametrize("name", UNSCALED)
def test_a_patch_is_described_as_the_photo_is_where_there_is_no_scale(keypoints, name):
    side, size, create = UNSCALED[name]
    rotated = [
        cv2.KeyPoint(round(point.pt[0]), round(point.pt[1]), size, point.angle, octave=0, class_id=0)
        for point in keypoints
    ]
    angles = [point.angle for point in rotated]
    frames = frames_from_arrays([point.pt for point in rotated], [side / 2] * len(rotated), angles)
    rotated, frames = whole(rotated, frames)
    kept, of_photo = create().compute(PHOTO.copy(), rotated)
    assert len(kept) == len(rotated) > 80
    assert_alike(BASELINES[name]().describe_patches(cut(frames)), of_photo, 0.12)


@EACH
def test_descriptors_of_frames_are_close_to_those_of_their_patches(keypoints, name):
    _, frames = whole(keypoints, frames_from_keypoints(keypoints))
    baseline = BASELINES[name]()
    described = baseline.describe(PHOTO, frames)
    assert torch.equal(baseline.describe(Pyramid(PHOTO), frames), described)
    assert_alike(baseline.describe_patches(cut(frames)), described, 0.2)


def test_sift_is_close_to_opencv_and_closer_with_the_pixels_around_the_patch(keypoints):
    found, frames = whole(keypoints, frames_from_keypoints(keypoints))
    of_photo = torch.nn.functional.normalize(torch.from_numpy(cv2.SIFT.create().compute(PHOTO, found)[1]))
    near, far = (
        (described * of_photo).sum(dim=1)
        for described in (sift().describe(PHOTO, frames), sift().describe_patches(cut(frames)))
    )
    assert near.mean() > 0.985
    assert near.mean() > far.mean() > 0.96
    assert far.min() > 0.85


@EACH
def test_a_rotated_photo_with_rotated_frames_has_the_same_descriptors(name):
    # With a side of 2ⁿ + 1, the coarse levels of a photo hold the same pixels in both directions.
    photo = PHOTO[:257, 120:377].copy()
    frames = sift_detector().detect(photo)[0]
    frames = frames[inside(frames, *photo.shape)][:60]
    turn = np.array([[0, 1, 0], [-1, 0, 256], [0, 0, 1.0]])
    upright = BASELINES[name]().describe_patches(cut(frames, photo))
    rotated = BASELINES[name]().describe_patches(cut(transform_frames(frames, turn), np.rot90(photo).copy()))
    assert_alike(upright, rotated, 0.02)


@pytest.mark.parametrize("name", REAL)
def test_a_rotation_by_180_degrees_permutes_bins_and_directions(patches, name):
    baseline = BASELINES[name]()
    upright, rotated = baseline.describe_patches(patches), baseline.describe_patches(patches.flip(2, 3))
    # 4×4 bins of 8 directions: the bins are reversed, and the directions shift by four.
    expected = upright.view(-1, 4, 4, 8).flip(1, 2).roll(4, dims=3).flatten(1)
    assert (expected * rotated).sum(dim=1).min() > 0.99


def test_rootsift_is_the_root_of_l1_normalised_sift_of_unit_length(patches):
    plain = sift().describe_patches(patches)
    torch.testing.assert_close(plain.norm(dim=1), torch.ones(len(patches)))
    torch.testing.assert_close(rootsift().describe_patches(patches).square(), plain / plain.sum(dim=1, keepdim=True))


@EACH
def test_flat_patches_have_one_descriptor_and_that_of_sift_is_zero(name):
    flat = torch.tensor([0.0, 0.4, 1.0]).view(3, 1, 1, 1).expand(3, 1, 32, 32)
    described = BASELINES[name]().describe_patches(flat)
    assert len(described.unique(dim=0)) == 1
    assert name not in REAL or not described.any()


@EACH
def test_descriptors_do_not_depend_on_batches_or_threads(patches, name):
    baseline, few = BASELINES[name](), patches[:8]
    single = torch.cat([baseline.describe_patches(patch[None]) for patch in few])
    assert (single.shape, single.dtype) == ((8, WIDTHS[name]), torch.float32 if name in REAL else torch.uint8)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        in_threads = baseline.describe_patches(few.repeat(20, 1, 1, 1))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(in_threads, single.repeat(20, 1))
    none = baseline.describe_patches(few[:0])
    assert (none.shape, none.dtype) == ((0, WIDTHS[name]), single.dtype)
    assert baseline.describe(PHOTO, np.zeros((0, 2, 3), np.float32)).shape == none.shape


@pytest.mark.parametrize("engine", ["TEBLID", "AKAZE"])
def test_opencv_without_contrib_is_an_error(monkeypatch, engine):
    for home in (MORE, cv2):
        monkeypatch.delattr(home, f"{engine}_create", raising=False)
    with pytest.raises(MissingExtra, match=rf"{engine}_create .*pip install .*opencv-contrib-python"):
        BASELINES[engine.lower()]()


def test_rootsift_wide_equals_rootsift_on_keypoints_of_one_and_a_half_times_the_size(patches):
    keypoints = cv2.SIFT.create(60).detect(PHOTO)
    frames = frames_from_keypoints(keypoints)
    enlarged = [cv2.KeyPoint(*one.pt, 1.5 * one.size, one.angle, one.response, one.octave) for one in keypoints]
    expected, found = (
        rootsift().describe(PHOTO, frames_from_keypoints(enlarged)),
        rootsift_wide().describe(PHOTO, frames),
    )
    # Rounding of a side by float32 may change a value of SIFT by one.
    assert (found - expected).norm(dim=1).max() < 0.02
    assert (found - rootsift().describe(PHOTO, frames)).norm(dim=1).mean() > 0.2
    # Patches already show the wider region.
    assert isinstance(rootsift_wide(), PatchDescriber)
    assert torch.equal(rootsift_wide().describe_patches(patches), rootsift().describe_patches(patches))
