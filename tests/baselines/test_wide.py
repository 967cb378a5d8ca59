"""A baseline on wider patches is the baseline on enlarged keypoints."""

from __future__ import annotations

import cv2
import numpy as np
import torch
from skimage import data

from doap.baselines import BASELINES, rootsift, rootsift_wide
from doap.describer import PatchDescriber
from doap.images import frames_from_keypoints

PHOTO = data.camera()[100:400, 100:400].copy()


def test_rootsift_wide_equals_rootsift_on_keypoints_of_one_and_a_half_times_the_size():
    keypoints = cv2.SIFT.create(60).detect(PHOTO)
    enlarged = [cv2.KeyPoint(*one.pt, 1.5 * one.size, one.angle, one.response, one.octave) for one in keypoints]
    expected = rootsift().describe(PHOTO, frames_from_keypoints(enlarged))
    found = rootsift_wide().describe(PHOTO, frames_from_keypoints(keypoints))
    # Rounding of a side by float32 may change a value of SIFT by one.
    assert (found - expected).norm(dim=1).max() < 0.02
    assert (found - rootsift().describe(PHOTO, frames_from_keypoints(keypoints))).norm(dim=1).mean() > 0.2


def test_patches_already_show_the_wider_region():
    patches = torch.rand(4, 1, 32, 32)
    assert torch.equal(rootsift_wide().describe_patches(patches), rootsift().describe_patches(patches))


def test_rootsift_wide_is_a_baseline_with_its_own_fingerprint():
    wide = BASELINES["rootsift-wide"]()
    assert isinstance(wide, PatchDescriber)
    assert (wide.name, wide.extent, wide.dim, wide.kind, wide.patch_size) == ("rootsift-wide", 1.5, 128, "real", 32)
    assert wide.fingerprint() != rootsift().fingerprint()


def test_frames_are_not_changed_and_none_is_fine():
    frames = frames_from_keypoints(cv2.SIFT.create(5).detect(PHOTO))
    before = frames.copy()
    rootsift_wide().describe(PHOTO, frames)
    assert np.array_equal(frames, before)
    assert rootsift_wide().describe(PHOTO, frames[:0]).shape == (0, 128)
