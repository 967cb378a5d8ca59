"""OpenCV's descriptors of patches, held against OpenCV's own of the photo the patches are from."""

from __future__ import annotations

from functools import partial

import cv2
import numpy as np
import pytest
import torch
from skimage import data

from doap.baselines import BASELINES, OpenCVBaseline, rootsift, sift, teblid, vgg
from doap.describer import Describer, fingerprint
from doap.detectors import sift as sift_detector
from doap.errors import ArgumentError, ShapeError
from doap.images import (
    Pyramid,
    extract_patches,
    frames_from_arrays,
    frames_from_keypoints,
    inside,
    transform_frames,
)

# Those that need the photo are in test_dsp_sift.py.
OF_PATCHES = {name: create for name, create in BASELINES.items() if isinstance(create(), OpenCVBaseline)}
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
# What OpenCV's documentation has for the window of SIFT's keypoints, over their size.
SIFT_WINDOW = 6.75
MORE = cv2.xfeatures2d
# With the side of a patch that each of these was learned on.
SCALED = {
    "vgg": (64, partial(MORE.VGG_create, desc=100, scale_factor=SIFT_WINDOW)),
    "boostdesc": (32, partial(MORE.BoostDesc_create, desc=302, scale_factor=SIFT_WINDOW)),
    "teblid": (32, partial(MORE.TEBLID_create, SIFT_WINDOW, MORE.TEBLID_SIZE_256_BITS)),
    "teblid-512": (32, partial(MORE.TEBLID_create, SIFT_WINDOW, MORE.TEBLID_SIZE_512_BITS)),
    "beblid": (32, partial(MORE.BEBLID_create, SIFT_WINDOW, MORE.BEBLID_SIZE_256_BITS)),
    "beblid-512": (32, partial(MORE.BEBLID_create, SIFT_WINDOW, MORE.BEBLID_SIZE_512_BITS)),
}
# These know no scale: with the side of what they look at, in pixels of any photo, and the size of their keypoints.
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
    """Those with all of their window, and what engines read around it, in the photo."""
    kept = np.flatnonzero(inside(frames, *PHOTO.shape, margin=20))[:max_keypoints]
    return [keypoints[index] for index in kept], frames[kept]


def assert_alike(described, expected, closest):
    """Rows are within `closest` of each other (mean share of bits that differ, or 1 − cosine); of others they are not.

    Measured with OpenCV 5.0: 0.03 for VGG and DAISY, against 0.29 and more from others; 0.04 to 0.10 for bits, against
    0.45 to 0.50.
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
def test_a_peer_is_a_describer_of_its_name(name, patches):
    peer: Describer = BASELINES[name]()
    assert isinstance(peer, Describer)
    assert (BASELINES[name]().name, peer.patch_size) == (name, 32)
    described = peer.describe(patches)
    if name in REAL:
        assert (peer.kind, described.dtype, described.shape) == ("real", torch.float32, (len(patches), peer.dim))
    else:
        assert (peer.kind, peer.dim) == ("binary", BITS[name])
        assert (described.dtype, described.shape) == (torch.uint8, (len(patches), BITS[name] // 8))


@pytest.mark.parametrize("name", SCALED)
def test_a_patch_is_described_as_the_photo_is_at_the_window_of_the_documentation(keypoints, name):
    side, create = SCALED[name]
    # The engines sample photos neither finer nor with less aliasing than their own patches: no others can agree.
    near = [point for point in keypoints if 0.7 < SIFT_WINDOW * point.size / side < 1.5]
    near, frames = whole(near, frames_from_keypoints(near, SIFT_WINDOW))
    assert len(near) > 80
    assert_alike(BASELINES[name]().describe(cut(frames)), create().compute(PHOTO.copy(), near)[1], 0.12)


@pytest.mark.parametrize("name", UNSCALED)
def test_a_patch_is_described_as_the_photo_is_where_there_is_no_scale(keypoints, name):
    side, size, create = UNSCALED[name]
    turned = [
        cv2.KeyPoint(round(point.pt[0]), round(point.pt[1]), size, point.angle, octave=0, class_id=0)
        for point in keypoints
    ]
    angles = [point.angle for point in turned]
    frames = frames_from_arrays([point.pt for point in turned], [side / 2] * len(turned), angles)
    turned, frames = whole(turned, frames)
    # LATCH blurs the photo it is given.
    kept, of_photo = create().compute(PHOTO.copy(), turned)
    assert len(kept) == len(turned) > 80
    assert_alike(BASELINES[name]().describe(cut(frames)), of_photo, 0.12)


@pytest.mark.parametrize("name", ["sift", "rootsift", "daisy"])
def test_of_a_photo_more_is_seen_than_of_its_patches(keypoints, name):
    """A bright frame drawn just outside the patches shows in the one and not in the other."""
    peer, photo = BASELINES[name](), PHOTO.copy()
    frame = frames_from_arrays([[150.0, 120.0]], [32.0], [0.0])
    cv2.rectangle(photo, (150 - 40, 120 - 40), (150 + 40, 120 + 40), 255, 3)
    assert torch.equal(peer.describe(cut(frame)), peer.describe(cut(frame, photo=photo)))
    assert not torch.equal(peer.describe_frames(PHOTO, frame), peer.describe_frames(photo, frame))


@pytest.mark.parametrize("name", OF_PATCHES)
def test_frames_of_a_photo_are_described_nearly_as_their_patches(keypoints, name):
    _, frames = whole(keypoints, frames_from_keypoints(keypoints))
    peer = BASELINES[name]()
    described = peer.describe_frames(PHOTO, frames)
    assert torch.equal(peer.describe_frames(Pyramid(PHOTO), frames), described)
    assert peer.describe_frames(PHOTO, frames[:0]).shape == (0, described.shape[1])
    assert_alike(peer.describe(cut(frames)), described, 0.2)


def test_sift_of_frames_is_that_of_the_photo(keypoints):
    """With what lies around the patch it is nearer to OpenCV's own, whose pyramid alone differs from ours."""
    found, frames = whole(keypoints, frames_from_keypoints(keypoints))
    of_photo = torch.nn.functional.normalize(torch.from_numpy(cv2.SIFT.create().compute(PHOTO, found)[1]))
    from_frames, from_patches = sift().describe_frames(PHOTO, frames), sift().describe(cut(frames))
    near, far = ((described * of_photo).sum(dim=1).mean() for described in (from_frames, from_patches))
    assert near > 0.985
    assert near > far


@pytest.mark.parametrize("size", [32, 41, 64])
def test_sift_of_a_patch_is_that_of_the_photo(keypoints, size):
    found, frames = whole(keypoints, frames_from_keypoints(keypoints))
    described = sift(size).describe(cut(frames, size))
    of_photo = torch.nn.functional.normalize(torch.from_numpy(cv2.SIFT.create().compute(PHOTO, found)[1]))
    cosine = (described * of_photo).sum(dim=1)
    assert cosine.mean() > 0.96
    assert cosine.min() > 0.85


@pytest.mark.parametrize("name", OF_PATCHES)
def test_a_turned_photo_with_turned_frames_is_described_alike(keypoints, name):
    # With a side of 2ⁿ + 1 the coarse levels of a photo hold the same pixels from either end.
    photo = PHOTO[:257, 120:377].copy()
    frames = sift_detector().detect(photo)[0]
    frames = frames[inside(frames, *photo.shape)][:60]
    turn = np.array([[0, 1, 0], [-1, 0, 256], [0, 0, 1.0]])
    upright = BASELINES[name]().describe(cut(frames, photo=photo))
    turned = BASELINES[name]().describe(cut(transform_frames(frames, turn), photo=np.rot90(photo).copy()))
    assert_alike(upright, turned, 0.02)


@pytest.mark.parametrize("name", OF_PATCHES)
def test_a_turned_patch_is_another(patches, name):
    peer = BASELINES[name]()
    one, other = (np.asarray(peer.describe(some)) for some in (patches, patches.flip(2, 3)))
    if name in REAL:
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        assert ((one * other).sum(axis=1) / lengths).mean() < 0.9
    else:
        assert np.unpackbits(one ^ other, axis=1).mean() > 0.3


@pytest.mark.parametrize("name", ["sift", "rootsift"])
def test_half_a_turn_turns_bins_and_directions(patches, name):
    peer = BASELINES[name]()
    upright, turned = peer.describe(patches), peer.describe(patches.flip(2, 3))
    # 4×4 bins of 8 directions: the bins change places through the middle, the directions turn by four.
    expected = upright.view(-1, 4, 4, 8).flip(1, 2).roll(4, dims=3).flatten(1)
    assert (expected * turned).sum(dim=1).min() > 0.99


@pytest.mark.parametrize("name", ["sift", "rootsift", "daisy"])
def test_rows_have_unit_length(patches, name):
    torch.testing.assert_close(BASELINES[name]().describe(patches).norm(dim=1), torch.ones(len(patches)))


def test_rootsift_is_the_root_of_shares(patches):
    plain = sift().describe(patches)
    torch.testing.assert_close(rootsift().describe(patches).square(), plain / plain.sum(dim=1, keepdim=True))


@pytest.mark.parametrize("grey", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("name", REAL)
def test_a_flat_patch_is_zeros(name, grey):
    peer = BASELINES[name]()
    assert torch.equal(peer.describe(torch.full((2, 1, 32, 32), grey)), torch.zeros(2, peer.dim))


@pytest.mark.parametrize("name", BITS)
def test_all_flat_patches_have_one_code(name):
    flat = torch.tensor([0.0, 0.4, 1.0]).view(3, 1, 1, 1).expand(3, 1, 32, 32)
    assert len(BASELINES[name]().describe(flat).unique(dim=0)) == 1


@pytest.mark.parametrize("name", OF_PATCHES)
def test_no_patches_give_no_rows(name):
    peer = BASELINES[name]()
    width = peer.dim if name in REAL else peer.dim // 8
    assert peer.describe(torch.zeros(0, 1, 32, 32)).shape == (0, width)


@pytest.mark.parametrize("name", OF_PATCHES)
def test_one_by_one_many_at_once_and_in_threads_are_the_same(patches, name):
    peer, few = BASELINES[name](), patches[:8]
    alone = torch.cat([peer.describe(patch[None]) for patch in few])
    many = few.repeat(20, 1, 1, 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        in_threads = peer.describe(many)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(peer.describe(few), alone)
    assert torch.equal(in_threads, alone.repeat(20, 1))


@pytest.mark.parametrize("name", OF_PATCHES)
@pytest.mark.parametrize("size", [8, 65])
def test_patches_of_any_size_are_described(name, size):
    smooth = torch.nn.functional.interpolate(torch.rand(4, 1, 5, 5), (size, size), mode="bicubic").clamp(0, 1)
    create = OF_PATCHES[name]
    described = create(patch_size=size).describe(smooth)
    assert described.float().isfinite().all()
    assert len(described.unique(dim=0)) == 4


def test_every_peer_has_a_fingerprint_of_its_own():
    marks = {name: fingerprint(create()) for name, create in BASELINES.items()}
    assert len(set(marks.values())) == len(BASELINES)
    assert marks["vgg"] == fingerprint(vgg())


def test_patches_of_another_shape_or_type_are_refused():
    with pytest.raises(ShapeError, match=r"patches: expected \(N, 1, 32, 32\), got \(2, 1, 64, 64\)"):
        sift().describe(torch.zeros(2, 1, 64, 64))
    with pytest.raises(ArgumentError, match=r"expected floats in 0…1, got torch\.uint8"):
        sift().describe(torch.zeros(2, 1, 32, 32, dtype=torch.uint8))
    with pytest.raises(ArgumentError, match="patch_size: expected 8 pixels or more, got 4"):
        sift(4)


@pytest.mark.parametrize("engine", ["TEBLID", "BEBLID", "VGG", "DAISY", "LATCH", "BoostDesc", "AKAZE"])
def test_an_opencv_without_contrib_is_told(monkeypatch, engine):
    for home in (MORE, cv2):
        monkeypatch.delattr(home, f"{engine}_create", raising=False)
    with pytest.raises(ArgumentError, match="opencv-contrib-python-headless"):
        BASELINES[engine.lower()]()


def test_only_two_lengths_of_learned_boxes_exist():
    with pytest.raises(ArgumentError, match="bits: expected 256 or 512, got 128"):
        teblid(bits=128)
