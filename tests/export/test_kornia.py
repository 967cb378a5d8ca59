"""A `Descriptor` in kornia: `LAFDescriptor` requires a module that maps (B, 1, S, S) to (B, D)."""

import numpy as np
import pytest
import torch

from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.images import inside, read_grey
from doap.metrics import pack_bits
from oracles.photos import write_photo

feature = pytest.importorskip("kornia.feature")


@pytest.mark.parametrize("kind", ["real", "binary"])
@torch.no_grad()
def test_a_descriptor_describes_frames_in_kornia_as_in_doap(tmp_path, kind):
    torch.manual_seed(0)
    descriptor = Descriptor.build(kind=kind, dim=64).eval()
    in_kornia = feature.LAFDescriptor(descriptor, patch_size=descriptor.patch_size, grayscale_descriptor=True)
    photo = read_grey(write_photo(tmp_path / "a.png", seed=0))
    frames, _ = sift().detect(photo, 300)
    frames = frames[inside(frames, *photo.shape, margin=2)]
    found = in_kornia(torch.from_numpy(photo)[None, None].float() / 255, torch.from_numpy(frames)[None])[0]
    expected = descriptor.describe(photo, frames)
    if kind == "real":
        # A shift of a quarter of a pixel would reduce the median to 0.996, unrelated frames to 0.75.
        cosines = torch.cosine_similarity(found, expected)
        assert cosines.median() > 0.999
        assert cosines.min() > 0.98
    else:
        # The signs of the activations are the bits.
        apart = np.unpackbits((pack_bits(found) ^ expected).numpy(), axis=1).mean(axis=1)
        assert np.median(apart) < 0.05
