"""Peers: classical descriptors of patches, held against OpenCV's own of the photo the patches are from."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from doap.descriptor import Descriptor
from doap.detectors import sift as sift_detector
from doap.errors import ArgumentError, ShapeError
from doap.images import extract_patches, frames_from_keypoints, inside, read_grey
from doap.peers import PEERS, Describer, from_function, rootsift, sift, teblid
from oracles.photos import write_photo

REAL = ["sift", "rootsift"]


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return read_grey(write_photo(tmp_path_factory.mktemp("photo") / "a.png", seed=0))


@pytest.fixture(scope="module")
def keypoints(photo):
    found = sift_detector().keypoints(photo)
    whole = inside(frames_from_keypoints(found), *photo.shape)
    return [point for point, is_whole in zip(found, whole, strict=True) if is_whole][:150]


def cut(photo, keypoints, size=32):
    patches = extract_patches(photo, frames_from_keypoints(keypoints), size)
    return torch.from_numpy(patches).unsqueeze(1) / 255


def bits(codes):
    return np.unpackbits(np.asarray(codes), axis=1)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_a_describer_of_its_name(name):
    peer: Describer = PEERS[name]()
    assert isinstance(peer, Describer)
    assert PEERS[name]().name == name
    assert peer.patch_size == 32


def test_a_descriptor_is_a_describer():
    descriptor: Describer = Descriptor.build(dim=16)
    assert isinstance(descriptor, Describer)


@pytest.mark.parametrize("size", [32, 41, 64])
def test_sift_of_a_patch_is_that_of_the_photo(photo, keypoints, size):
    described = sift(size).describe(cut(photo, keypoints, size))
    of_photo = torch.nn.functional.normalize(torch.from_numpy(cv2.SIFT.create().compute(photo, keypoints)[1]))
    cosine = (described * of_photo).sum(dim=1)
    assert cosine.mean() > 0.96
    assert cosine.min() > 0.88


@pytest.mark.parametrize("name", ["TEBLID", "BEBLID"])
def test_bits_of_a_patch_are_those_of_the_photo(photo, keypoints, name):
    # The patch is six times the keypoint's size, and so is what the engine looks at with this scale factor.
    engine = getattr(cv2.xfeatures2d, f"{name}_create")(6.0, getattr(cv2.xfeatures2d, f"{name}_SIZE_256_BITS"))
    of_photo = bits(engine.compute(photo, keypoints)[1])
    of_patch = bits(PEERS[name.lower()]().describe(cut(photo, keypoints)))
    assert (of_patch != of_photo).mean() < 0.1
    assert (of_patch != np.roll(of_photo, 7, axis=0)).mean() > 0.4


@pytest.mark.parametrize("name", REAL)
def test_real_peers_give_unit_rows(photo, keypoints, name):
    described = PEERS[name]().describe(cut(photo, keypoints))
    assert described.dtype == torch.float32
    assert described.shape == (len(keypoints), 128)
    torch.testing.assert_close(described.norm(dim=1), torch.ones(len(keypoints)))


def test_rootsift_is_the_root_of_shares(photo, keypoints):
    patches = cut(photo, keypoints)
    plain = sift().describe(patches)
    torch.testing.assert_close(rootsift().describe(patches).square(), plain / plain.sum(dim=1, keepdim=True))


def test_teblid_gives_32_bytes(photo, keypoints):
    peer = teblid()
    described = peer.describe(cut(photo, keypoints))
    assert (peer.dim, peer.kind) == (256, "binary")
    assert described.dtype == torch.uint8
    assert described.shape == (len(keypoints), 32)


@pytest.mark.parametrize("grey", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("name", REAL)
def test_a_flat_patch_is_zeros(name, grey):
    assert torch.equal(PEERS[name]().describe(torch.full((2, 1, 32, 32), grey)), torch.zeros(2, 128))


def test_all_flat_patches_have_one_code():
    flat = torch.tensor([0.0, 0.4, 1.0]).view(3, 1, 1, 1).expand(3, 1, 32, 32)
    assert len(teblid().describe(flat).unique(dim=0)) == 1


@pytest.mark.parametrize("name", REAL)
def test_half_a_turn_turns_bins_and_directions(photo, keypoints, name):
    peer, patches = PEERS[name](), cut(photo, keypoints)
    upright, turned = peer.describe(patches), peer.describe(patches.flip(2, 3))
    assert ((upright * turned).sum(dim=1) < 0.9).float().mean() > 0.9
    # 4×4 bins of 8 directions: the bins change places through the middle, the directions turn by four.
    expected = upright.view(-1, 4, 4, 8).flip(1, 2).roll(4, dims=3).flatten(1)
    assert (expected * turned).sum(dim=1).min() > 0.99


def test_half_a_turn_changes_the_code(photo, keypoints):
    patches = cut(photo, keypoints)
    assert (bits(teblid().describe(patches)) != bits(teblid().describe(patches.flip(2, 3)))).mean() > 0.3


@pytest.mark.parametrize(("name", "width"), [("sift", 128), ("rootsift", 128), ("teblid", 32), ("beblid", 32)])
def test_no_patches_give_no_rows(name, width):
    assert PEERS[name]().describe(torch.zeros(0, 1, 32, 32)).shape == (0, width)


@pytest.mark.parametrize("name", PEERS)
def test_a_patch_is_described_alone(photo, keypoints, name):
    peer, patches = PEERS[name](), cut(photo, keypoints[:3])
    alone = torch.cat([peer.describe(patch[None]) for patch in patches])
    assert torch.equal(peer.describe(patches), alone)


def test_patches_of_another_shape_or_type_are_refused():
    with pytest.raises(ShapeError, match=r"patches: expected \(N, 1, 32, 32\), got \(2, 1, 64, 64\)"):
        sift().describe(torch.zeros(2, 1, 64, 64))
    with pytest.raises(ArgumentError, match=r"expected floats in 0…1, got torch\.uint8"):
        sift().describe(torch.zeros(2, 1, 32, 32, dtype=torch.uint8))
    with pytest.raises(ArgumentError, match="patch_size: expected 8 pixels or more, got 4"):
        sift(4)


def test_an_opencv_without_contrib_is_told(monkeypatch):
    monkeypatch.delattr(cv2.xfeatures2d, "TEBLID_create")
    with pytest.raises(ArgumentError, match="opencv-contrib-python-headless"):
        teblid()


def test_a_function_of_patches_is_a_describer_too():
    signs = from_function(lambda patches: np.packbits(patches[:, 0, :8, 0].numpy() > 0.5, axis=1), name="signs")
    assert isinstance(signs, Describer)
    assert (signs.dim, signs.kind, signs.patch_size) == (8, "binary", 32)
    assert signs.describe(torch.ones(2, 1, 32, 32)).tolist() == [[255], [255]]
    assert signs.describe(torch.zeros(0, 1, 32, 32)).shape == (0, 1)


def test_a_function_that_loses_patches_is_told():
    with pytest.raises(ShapeError, match=r"function of the patches: expected \(3, 1024\), got \(1, 1024\)"):
        from_function(lambda patches: patches[:1].flatten(1)).describe(torch.zeros(3, 1, 32, 32))
