"""HashSIFT with the projection published by its authors."""

import cv2
import numpy as np
import pytest
import torch
from skimage import data

from doap.baselines import load_baseline, sift
from doap.detectors import sift as sift_detector
from doap.images import angles, centres, inside, resize_frames, scales

PHOTO = data.camera()[100:400, 100:400].copy()


@pytest.fixture
def weights(data_folder):
    return data_folder / "baselines" / "hashsift-256.npy"


def signs(projection, descriptors):
    """Return (N, D) bits by the definition: bit d is 1 if the bias plus the weighted sum is positive."""
    bits = np.zeros((len(descriptors), len(projection)), np.uint8)
    for row, descriptor in enumerate(descriptors):
        for column, (bias, *weights) in enumerate(projection):
            bits[row, column] = bias + np.dot(weights, descriptor) > 0
    return bits


def opencv_sift(frame, factor):
    """Return OpenCV's SIFT (128,) of an enlarged keypoint of the photo, from a level with the blur of the keypoint."""
    (x, y), angle = centres(frame[None])[0], angles(frame[None])[0]
    size = float(factor * scales(frame[None])[0] / 3)
    keypoint = cv2.KeyPoint(float(x), float(y), size, float(angle), 0, 0)
    return cv2.SIFT.create(nOctaveLayers=1, sigma=size / 2).compute(PHOTO, [keypoint])[1][0]


@pytest.mark.data("baselines/hashsift-256.npy")
def test_bits_are_the_signs_of_an_explicit_product(weights):
    patches = torch.rand(12, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    # OpenCV's SIFT has integers and a length of about 512; the baseline `sift` scales it to 1.
    descriptors = 512 * sift().describe_patches(patches).double().numpy()
    expected = np.packbits(signs(np.load(weights), descriptors), axis=1)
    assert np.array_equal(load_baseline(weights).describe_patches(patches), expected)


@pytest.mark.data("baselines/hashsift-256.npy")
def test_keypoints_give_the_bits_of_opencvs_sift_on_keypoints_of_6_75_sizes(weights):
    """OpenCV describes the same enlarged keypoints in the photo; it samples the pixels in its own way."""
    frames = sift_detector().detect(PHOTO, 300)[0]
    wide = resize_frames(frames, 6.75 / 6)
    frames = frames[inside(resize_frames(wide, 1.5), *PHOTO.shape)][:40]
    assert len(frames) == 40
    found = np.unpackbits(load_baseline(weights).describe(PHOTO, frames).numpy(), axis=1)
    agreement = {}
    for sizes in (6.0, 6.75, 7.5):
        descriptors = np.array([opencv_sift(frame, sizes / 6) for frame in frames], np.float64)
        agreement[sizes] = (found == signs(np.load(weights), descriptors)).mean()
    assert agreement[6.75] == max(agreement.values()) > 0.9
