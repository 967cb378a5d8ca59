"""A `Descriptor` in kornia: `LAFDescriptor` requires a module that maps (B, 1, S, S) to (B, D)."""

import numpy as np
import pytest
import torch

from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.images import extract_patches, inside, read_grey
from doap.metrics import pack_bits
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
def test_equal_patches_give_equal_descriptors(photo, descriptor):
    image, lafs = as_kornia(photo, frames_of(photo))
    patches = feature.extract_patches_from_pyramid(image, lafs, PS=descriptor.patch_size)[0]
    torch.testing.assert_close(
        in_kornia(descriptor)(image, lafs)[0], descriptor.describe_patches(patches), rtol=0, atol=1e-5
    )


@torch.no_grad()
def compare(photo, descriptor):
    """Return cosine similarities of descriptors and of centred patches between kornia's pyramid and doap's."""
    frames = frames_of(photo)
    image, lafs = as_kornia(photo, frames)
    descriptors = torch.cosine_similarity(in_kornia(descriptor)(image, lafs)[0], descriptor.describe(photo, frames))
    kornia_patches = feature.extract_patches_from_pyramid(image, lafs, PS=descriptor.patch_size)[0, :, 0]
    doap_patches = torch.from_numpy(extract_patches(photo, frames, descriptor.patch_size)) / 255
    flat = [patches.flatten(1) for patches in (kornia_patches, doap_patches)]
    patches = torch.cosine_similarity(*(rows - rows.mean(1, keepdim=True) for rows in flat))
    return descriptors, patches


def assert_alike(photo, descriptor):
    """A shift of a quarter of a pixel would reduce the medians to 0.996 and 0.994, unrelated frames to 0.75."""
    descriptors, patches = compare(photo, descriptor)
    assert descriptors.median() > 0.999
    assert patches.median() > 0.999
    assert descriptors.min() > 0.98


def test_kornias_patches_of_the_same_frames_give_similar_descriptors(photo, descriptor):
    assert_alike(photo, descriptor)


@pytest.mark.data("photos")
def test_kornias_patches_give_similar_descriptors_on_a_real_photo(data_folder, descriptor):
    assert_alike(read_grey(data_folder / "photos" / "sacre_coeur" / "003.jpg"), descriptor)


@torch.no_grad()
def test_the_signs_of_a_binary_descriptors_activations_are_its_bits(photo):
    torch.manual_seed(0)
    descriptor = Descriptor.build(kind="binary", dim=64).eval()
    frames = frames_of(photo)
    activations = in_kornia(descriptor)(*as_kornia(photo, frames))
    assert activations.shape == (1, len(frames), 64)
    codes = pack_bits(activations[0])
    apart = np.unpackbits((codes ^ descriptor.describe(photo, frames)).numpy(), axis=1).mean(axis=1)
    assert np.median(apart) < 0.05
