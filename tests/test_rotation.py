"""Descriptors of an image rotated by exactly 90°, which has the same pixels, are the same."""

import cv2
import numpy as np
import pytest
import torch
from skimage import data

from doap.baselines import rootsift
from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.images import inside, transform_frames

PHOTO = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)
# Coarse levels of the pyramid hold every 2nd, 4th, … pixel. With a side of 2ⁿ + 1, both directions
# use the same ones.
SYMMETRIC, OTHER = PHOTO[:257, 120:377].copy(), PHOTO[:320, 100:420].copy()


def rotated(image, quarters):
    """Return the image after quarter turns to the left, and the (3, 3) homography to it."""
    height, width = image.shape
    to_left = {
        1: [[0, 1, 0], [-1, 0, width - 1], [0, 0, 1]],
        2: [[-1, 0, width - 1], [0, -1, height - 1], [0, 0, 1]],
        3: [[0, -1, height - 1], [1, 0, 0], [0, 0, 1]],
    }
    return np.rot90(image, quarters).copy(), np.array(to_left[quarters], np.float64)


def describer(name):
    torch.manual_seed(0)
    return rootsift() if name == "rootsift" else Descriptor.build()


def distances_after_rotation(image, quarters, name):
    """Return the distances (N,) between descriptors of frames and of the same frames in the rotated image."""
    frames, _ = sift().detect(image)
    frames = frames[inside(frames, *image.shape)]
    other, turn = rotated(image, quarters)
    assert len(frames) > 200
    upright = describer(name).describe(image, frames)
    carried = describer(name).describe(other, transform_frames(frames, turn))
    return (upright - carried).norm(dim=1).numpy()


@pytest.mark.parametrize("quarters", [1, 2, 3])
@pytest.mark.parametrize("name", ["rootsift", "untrained network"])
def test_a_rotated_image_has_the_same_descriptors(name, quarters):
    assert distances_after_rotation(SYMMETRIC, quarters, name).max() < 0.02
