"""OpenCV's descriptors of patches, compared with those of the photo the patches were cut from."""

from __future__ import annotations

from functools import partial

import cv2
import numpy as np
import pytest
import torch
from skimage import data

from doap._support.errors import ArgumentError, ShapeError
from doap.baselines import BASELINES, OpenCVBaseline, rootsift, sift, teblid, vgg
from doap.describer import Describer
from doap.detectors import sift as sift_detector
from doap.images import (
    Pyramid,
    extract_patches,
    frames_from_arrays,
    frames_from_keypoints,
    inside,
    transform_frames,
)

# Baselines that need the image are tested in test_dsp_sift.py, and the one with an extent in test_wide.py.
OF_PATCHES = {
    name: create
    for name, create in BASELINES.items()
    if isinstance(create(), OpenCVBaseline) and name != "rootsift-wide"
}
REAL = ("sift", "rootsift", "vgg", "daisy")
BITS = {
    "teblid": 256,
    "teblid-512": 512,
    "beblid": 256,
    "beblid-512": 512,
    "boostdesc": 256,
    "latch": 256,
    "orb": 256,
    "akaze": 488,
}
PHOTO = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)
# Window of SIFT's keypoints divided by their size, from OpenCV's documentation.
SIFT_WINDOW = 6.75
MORE = cv2.xfeatures2d
# With the side of the patches that each descriptor was trained on.
SCALED = {
    "vgg": (64, partial(MORE.VGG_create, desc=100, scale_factor=SIFT_WINDOW)),
    "boostdesc": (32, partial(MORE.BoostDesc_create, desc=302, scale_factor=SIFT_WINDOW)),
    "teblid": (32, partial(MORE.TEBLID_create, SIFT_WINDOW, MORE.TEBLID_SIZE_256_BITS)),
    "teblid-512": (32, partial(MORE.TEBLID_create, SIFT_WINDOW, MORE.TEBLID_SIZE_512_BITS)),
    "beblid": (32, partial(MORE.BEBLID_create, SIFT_WINDOW, MORE.BEBLID_SIZE_256_BITS)),
    "beblid-512": (32, partial(MORE.BEBLID_create, SIFT_WINDOW, MORE.BEBLID_SIZE_512_BITS)),
}
# These ignore the keypoint's scale. With the side of the described region in pixels, and the
# keypoint size.
UNSCALED = {
    "daisy": (32, 32, partial(MORE.DAISY_create, radius=16.0, use_orientation=True)),
    "latch": (48, 48, partial(MORE.LATCH_create, 32, True, 3)),
    "orb": (27, 31, partial(cv2.ORB.create, nlevels=1, edgeThreshold=0)),
    "akaze": (40, 4, partial(MORE.AKAZE_create, nOctaves=1, nOctaveLayers=1)),
}


@pytest.fixture(scope="module")
def keypoints():
    return sift_detector(0.01).keypoints(PHOTO)


@pytest.fixture(scope="module")
def patches(keypoints):
    return cut(frames_from_keypoints(keypoints[:60]))


def cut(frames, size=32, photo=PHOTO):
    return torch.from_numpy(extract_patches(photo, frames, size)).unsqueeze(1) / 255


def whole(keypoints, frames, max_keypoints=120):
    """Select keypoints whose window, and the pixels that engines read around it, are within the photo."""
    kept = np.flatnonzero(inside(frames, *PHOTO.shape, margin=20))[:max_keypoints]
    return [keypoints[index] for index in kept], frames[kept]


def assert_alike(described, expected, closest):
    """Check that corresponding rows are closer than `closest` and other rows are not.

    The distance is the mean share of different bits, or 1 − cosine. Measured with OpenCV 5.0: 0.03
    for VGG and DAISY, and at least 0.29 for other rows; 0.04 to 0.10 for bits, and 0.45 to 0.50 for
    other rows.
    """
    if described.dtype == torch.uint8:
        one, other = (np.unpackbits(np.asarray(codes), axis=1) for codes in (described, expected))
        apart, apart_from_others = (one != other).mean(), (one != np.roll(other, 7, axis=0)).mean()
    else:
        one, other = (torch.nn.functional.normalize(torch.as_tensor(rows)) for rows in (described, expected))
        apart, apart_from_others = (float(1 - (one * rows).sum(1).mean()) for rows in (other, other.roll(7, 0)))
        nearest = (one @ other.T).argmax(dim=1) == torch.arange(len(one))
        assert nearest.float().mean() > 0.9
    assert apart < closest
    assert apart_from_others > 4 * apart


@pytest.mark.parametrize("name", OF_PATCHES)
def test_a_baseline_is_a_describer_with_its_name(name, patches):
    baseline: Describer = BASELINES[name]()
    assert isinstance(baseline, Describer)
    assert (BASELINES[name]().name, baseline.patch_size) == (name, 32)
    described = baseline.describe_patches(patches)
    if name in REAL:
        assert (baseline.kind, described.dtype, described.shape) == (
            "real",
            torch.float32,
            (len(patches), baseline.dim),
        )
    else:
        assert (baseline.kind, baseline.dim) == ("binary", BITS[name])
        assert (described.dtype, described.shape) == (torch.uint8, (len(patches), BITS[name] // 8))


@pytest.mark.parametrize("name", SCALED)
def test_a_patch_is_described_as_the_photo_is_at_the_window_of_the_documentation(keypoints, name):
    side, create = SCALED[name]
    # The engines sample photos neither finer nor with less aliasing than their own patches: no
    # others can agree.
    near = [point for point in keypoints if 0.7 < SIFT_WINDOW * point.size / side < 1.5]
    near, frames = whole(near, frames_from_keypoints(near, SIFT_WINDOW))
    assert len(near) > 80
    assert_alike(BASELINES[name]().describe_patches(cut(frames)), create().compute(PHOTO.copy(), near)[1], 0.12)


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
    # LATCH blurs its input in place.
    kept, of_photo = create().compute(PHOTO.copy(), rotated)
    assert len(kept) == len(rotated) > 80
    assert_alike(BASELINES[name]().describe_patches(cut(frames)), of_photo, 0.12)


@pytest.mark.parametrize("name", ["sift", "rootsift", "daisy"])
def test_descriptors_of_a_photo_depend_on_more_pixels_than_the_patch(keypoints, name):
    """A bright rectangle just outside the patch changes the descriptor of the frame only."""
    baseline, photo = BASELINES[name](), PHOTO.copy()
    frame = frames_from_arrays([[150.0, 120.0]], [32.0], [0.0])
    cv2.rectangle(photo, (150 - 40, 120 - 40), (150 + 40, 120 + 40), 255, 3)
    assert torch.equal(baseline.describe_patches(cut(frame)), baseline.describe_patches(cut(frame, photo=photo)))
    assert not torch.equal(baseline.describe(PHOTO, frame), baseline.describe(photo, frame))


@pytest.mark.parametrize("name", OF_PATCHES)
def test_descriptors_of_frames_are_close_to_those_of_their_patches(keypoints, name):
    _, frames = whole(keypoints, frames_from_keypoints(keypoints))
    baseline = BASELINES[name]()
    described = baseline.describe(PHOTO, frames)
    assert torch.equal(baseline.describe(Pyramid(PHOTO), frames), described)
    assert baseline.describe(PHOTO, frames[:0]).shape == (0, described.shape[1])
    assert_alike(baseline.describe_patches(cut(frames)), described, 0.2)


def test_sift_of_frames_is_closer_to_opencv_than_sift_of_patches(keypoints):
    """With the pixels around the patch, only the pyramid differs from that of OpenCV."""
    found, frames = whole(keypoints, frames_from_keypoints(keypoints))
    of_photo = torch.nn.functional.normalize(torch.from_numpy(cv2.SIFT.create().compute(PHOTO, found)[1]))
    from_frames, from_patches = sift().describe(PHOTO, frames), sift().describe_patches(cut(frames))
    near, far = ((described * of_photo).sum(dim=1).mean() for described in (from_frames, from_patches))
    assert near > 0.985
    assert near > far


@pytest.mark.parametrize("size", [32, 41, 64])
def test_sift_of_a_patch_is_close_to_opencv(keypoints, size):
    found, frames = whole(keypoints, frames_from_keypoints(keypoints))
    described = sift(size).describe_patches(cut(frames, size))
    of_photo = torch.nn.functional.normalize(torch.from_numpy(cv2.SIFT.create().compute(PHOTO, found)[1]))
    cosine = (described * of_photo).sum(dim=1)
    assert cosine.mean() > 0.96
    assert cosine.min() > 0.85


@pytest.mark.parametrize("name", OF_PATCHES)
def test_a_rotated_photo_with_rotated_frames_has_the_same_descriptors(keypoints, name):
    # With a side of 2ⁿ + 1, the coarse levels of a photo hold the same pixels in both directions.
    photo = PHOTO[:257, 120:377].copy()
    frames = sift_detector().detect(photo)[0]
    frames = frames[inside(frames, *photo.shape)][:60]
    turn = np.array([[0, 1, 0], [-1, 0, 256], [0, 0, 1.0]])
    upright = BASELINES[name]().describe_patches(cut(frames, photo=photo))
    rotated = BASELINES[name]().describe_patches(cut(transform_frames(frames, turn), photo=np.rot90(photo).copy()))
    assert_alike(upright, rotated, 0.02)


@pytest.mark.parametrize("name", OF_PATCHES)
def test_a_rotated_patch_has_another_descriptor(patches, name):
    baseline = BASELINES[name]()
    one, other = (np.asarray(baseline.describe_patches(some)) for some in (patches, patches.flip(2, 3)))
    if name in REAL:
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        assert ((one * other).sum(axis=1) / lengths).mean() < 0.9
    else:
        assert np.unpackbits(one ^ other, axis=1).mean() > 0.3


@pytest.mark.parametrize("name", ["sift", "rootsift"])
def test_a_rotation_by_180_degrees_permutes_bins_and_directions(patches, name):
    baseline = BASELINES[name]()
    upright, rotated = baseline.describe_patches(patches), baseline.describe_patches(patches.flip(2, 3))
    # 4×4 bins of 8 directions: the bins are reversed, and the directions shift by four.
    expected = upright.view(-1, 4, 4, 8).flip(1, 2).roll(4, dims=3).flatten(1)
    assert (expected * rotated).sum(dim=1).min() > 0.99


@pytest.mark.parametrize("name", ["sift", "rootsift", "daisy"])
def test_rows_have_unit_length(patches, name):
    torch.testing.assert_close(BASELINES[name]().describe_patches(patches).norm(dim=1), torch.ones(len(patches)))


def test_rootsift_is_the_root_of_l1_normalised_sift(patches):
    plain = sift().describe_patches(patches)
    torch.testing.assert_close(rootsift().describe_patches(patches).square(), plain / plain.sum(dim=1, keepdim=True))


@pytest.mark.parametrize("grey", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("name", REAL)
def test_the_descriptor_of_a_flat_patch_is_zero(name, grey):
    baseline = BASELINES[name]()
    assert torch.equal(baseline.describe_patches(torch.full((2, 1, 32, 32), grey)), torch.zeros(2, baseline.dim))


@pytest.mark.parametrize("name", BITS)
def test_all_flat_patches_have_the_same_code(name):
    flat = torch.tensor([0.0, 0.4, 1.0]).view(3, 1, 1, 1).expand(3, 1, 32, 32)
    assert len(BASELINES[name]().describe_patches(flat).unique(dim=0)) == 1


@pytest.mark.parametrize("name", OF_PATCHES)
def test_zero_patches_give_zero_rows(name):
    baseline = BASELINES[name]()
    width = baseline.dim if name in REAL else baseline.dim // 8
    assert baseline.describe_patches(torch.zeros(0, 1, 32, 32)).shape == (0, width)


@pytest.mark.parametrize("name", OF_PATCHES)
def test_descriptors_do_not_depend_on_batches_or_threads(patches, name):
    baseline, few = BASELINES[name](), patches[:8]
    single = torch.cat([baseline.describe_patches(patch[None]) for patch in few])
    many = few.repeat(20, 1, 1, 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        in_threads = baseline.describe_patches(many)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(baseline.describe_patches(few), single)
    assert torch.equal(in_threads, single.repeat(20, 1))


@pytest.mark.parametrize("name", OF_PATCHES)
@pytest.mark.parametrize("size", [8, 65])
def test_patches_of_any_size_can_be_described(name, size):
    smooth = torch.nn.functional.interpolate(torch.rand(4, 1, 5, 5), (size, size), mode="bicubic").clamp(0, 1)
    create = OF_PATCHES[name]
    described = create(patch_size=size).describe_patches(smooth)
    assert described.float().isfinite().all()
    assert len(described.unique(dim=0)) == 4


def test_every_baseline_has_its_own_fingerprint():
    marks = {name: create().fingerprint() for name, create in BASELINES.items()}
    assert len(set(marks.values())) == len(BASELINES)
    assert marks["vgg"] == vgg().fingerprint()


def test_patches_of_the_wrong_shape_or_type_are_an_error():
    with pytest.raises(ShapeError, match=r"patches: expected \(N, 1, 32, 32\), got \(2, 1, 64, 64\)"):
        sift().describe_patches(torch.zeros(2, 1, 64, 64))
    with pytest.raises(ArgumentError, match=r"expected floats in 0…1, got torch\.uint8"):
        sift().describe_patches(torch.zeros(2, 1, 32, 32, dtype=torch.uint8))
    with pytest.raises(ArgumentError, match="patch_size: expected 8 pixels or more, got 4"):
        sift(4)


@pytest.mark.parametrize("engine", ["TEBLID", "BEBLID", "VGG", "DAISY", "LATCH", "BoostDesc", "AKAZE"])
def test_opencv_without_contrib_is_an_error_with_a_remedy(monkeypatch, engine):
    for home in (MORE, cv2):
        monkeypatch.delattr(home, f"{engine}_create", raising=False)
    with pytest.raises(ArgumentError, match="opencv-contrib-python-headless"):
        BASELINES[engine.lower()]()


def test_teblid_has_256_or_512_bits():
    with pytest.raises(ArgumentError, match="bits: expected 256 or 512, got 128"):
        teblid(bits=128)
