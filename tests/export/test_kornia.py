"""A `Descriptor` inside kornia: it is a module (B, 1, S, S) → (B, D), and that is all that `LAFDescriptor` asks for."""

import numpy as np
import pytest
import torch

from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.functional import pack_bits
from doap.images import extract_patches, inside, read_grey
from doap.pipeline import describe_frames
from oracles.photos import write_photo

feature = pytest.importorskip("kornia.feature")


def in_kornia(descriptor):
    return feature.LAFDescriptor(descriptor, patch_size=descriptor.patch_size, grayscale_descriptor=True)


@pytest.fixture(scope="module")
def descriptor():
    torch.manual_seed(0)
    return Descriptor.build().eval()


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return read_grey(write_photo(tmp_path_factory.mktemp("photo") / "a.png", seed=0))


def frames_of(photo):
    frames, _ = sift().detect(photo, 300)
    return frames[inside(frames, *photo.shape, margin=2)]


def as_kornia(photo, frames):
    return torch.from_numpy(photo)[None, None].float() / 255, torch.from_numpy(frames)[None]


@torch.no_grad()
def test_the_same_patches_give_the_same_descriptors(photo, descriptor):
    image, lafs = as_kornia(photo, frames_of(photo))
    patches = feature.extract_patches_from_pyramid(image, lafs, PS=descriptor.patch_size)[0]
    torch.testing.assert_close(in_kornia(descriptor)(image, lafs)[0], descriptor.describe(patches), rtol=0, atol=1e-5)


@torch.no_grad()
def compare(photo, descriptor):
    """Cosines of the descriptors, and of the patches about their means, of kornia's pyramid and of doap's."""
    frames = frames_of(photo)
    image, lafs = as_kornia(photo, frames)
    descriptors = torch.cosine_similarity(
        in_kornia(descriptor)(image, lafs)[0], describe_frames(photo, frames, descriptor)
    )
    theirs = feature.extract_patches_from_pyramid(image, lafs, PS=descriptor.patch_size)[0, :, 0]
    ours = torch.from_numpy(extract_patches(photo, frames, descriptor.patch_size)) / 255
    patches = torch.cosine_similarity(*(p.flatten(1) - p.flatten(1).mean(1, keepdim=True) for p in (theirs, ours)))
    return descriptors, patches


def assert_alike(photo, descriptor):
    """Frames that were off by a quarter of a pixel would have a median of 0.996 and 0.994, other frames 0.75."""
    descriptors, patches = compare(photo, descriptor)
    assert descriptors.median() > 0.999
    assert patches.median() > 0.999
    assert descriptors.min() > 0.98


def test_other_patches_of_the_same_frames_give_nearly_the_same(photo, descriptor):
    assert_alike(photo, descriptor)


@pytest.mark.data
def test_other_patches_give_nearly_the_same_on_a_real_photo(data_folder, descriptor):
    assert_alike(read_grey(data_folder / "photos" / "sacre_coeur" / "003.jpg"), descriptor)


@torch.no_grad()
def test_a_binary_descriptor_gives_activations_whose_signs_are_its_bits(photo):
    torch.manual_seed(0)
    descriptor = Descriptor.build(kind="binary", dim=64).eval()
    frames = frames_of(photo)
    activations = in_kornia(descriptor)(*as_kornia(photo, frames))
    assert activations.shape == (1, len(frames), 64)
    codes = pack_bits(activations[0])
    apart = np.unpackbits((codes ^ describe_frames(photo, frames, descriptor)).numpy(), axis=1).mean(axis=1)
    assert np.median(apart) < 0.05
