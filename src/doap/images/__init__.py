"""Read images, represent keypoint frames, sample patches and draw matches."""

from doap.images.draw import draw_matches, draw_strip
from doap.images.frames import (
    angles,
    centres,
    frames_from_affine,
    frames_from_arrays,
    frames_from_keypoints,
    frames_from_lafs,
    inside,
    resize_frames,
    scales,
    transform_frames,
)
from doap.images.patches import Pyramid, extract_patches, resize_patches
from doap.images.read import (
    ImageSource,
    as_colour,
    as_grey,
    as_mask,
    check_grey,
    list_images,
    read_colour,
    read_grey,
    shrink,
)

__all__ = [
    "ImageSource",
    "Pyramid",
    "angles",
    "as_colour",
    "as_grey",
    "as_mask",
    "centres",
    "check_grey",
    "draw_matches",
    "draw_strip",
    "extract_patches",
    "frames_from_affine",
    "frames_from_arrays",
    "frames_from_keypoints",
    "frames_from_lafs",
    "inside",
    "list_images",
    "read_colour",
    "read_grey",
    "resize_frames",
    "resize_patches",
    "scales",
    "shrink",
    "transform_frames",
]
