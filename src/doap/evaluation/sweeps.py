"""How matching holds when the camera turns or comes nearer.

A photo is turned by 0 to 180° about its middle, and scaled by ½ to 2, on a canvas that holds all of it. Keypoints are
found anew, described, and matched with those of the photo as mutual nearest neighbours. The inlier ratio is the share
of matches that lie within 3 pixels of the truth, in pixels of the coarser image; without matches it is 0.

Fine keypoints of the sharper image are not in the coarser one. They match nothing, or something wrong, whatever the
descriptor. So a second ratio is told, of the keypoints in each image that are no finer than the finest of the other.

A photo matched with itself has a ratio of 1 by its making, and no view that is sampled anew can have that. So the views
at 0° and ×1 are sampled anew too, a part of a pixel aside. They are the reference, and a fall is the share of its ratio
that is lost in the worst view. A descriptor that is never right has lost everything; one that is hardly ever right may
fall little, so the reference is a figure as well. Chance is a ratio of about 0.001.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap.detectors import Detector, sift
from doap.errors import ArgumentError, DataError
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.checksum import checksum
from doap.evaluation.image_pair import Photo, look_at
from doap.evaluation.result import Curve, Dataset, Figure, Scores
from doap.images import list_images, read_grey, scales, shrink
from doap.images.correspondence import partners, within
from doap.matching import match_descriptors
from doap.types import Progress, no_progress

Floats = NDArray[np.float64]
Setting = tuple[float, float]
"""Degrees and factor."""

REFERENCE: Setting = (0.0, 1.0)
SWEEPS: dict[str, list[Setting]] = {
    "rotation": [(float(degrees), 1.0) for degrees in range(0, 181, 15)],
    "scale": [(0.0, 2 ** (step / 4)) for step in range(-4, 5)],
}
AXES = {"rotation": "turned by, in degrees", "scale": "scaled by"}
KEYPOINTS = ("", ", keypoints in both")

# Between 0, where nothing is sampled anew, and ½, where the most is: as the pixels of a turned view are.
SHIFT = 0.3
NEAR = 3.0


@dataclass(frozen=True, eq=False)
class View:
    """A view of a photo, with no keypoints on the canvas around it, and the (3, 3) homography to it."""

    photo: Photo
    factor: float
    homography: Floats


@dataclass(frozen=True, eq=False)
class SweepsBenchmark:
    """Photos by name, and views of them, with their keypoints, ready to judge on; see `open_sweeps`."""

    dataset: Dataset
    protocol: dict[str, Any]
    photos: dict[str, Photo]
    views: dict[str, dict[Setting, View]]
    name: str = "sweeps"

    def judge(self, describe: CachedDescriber, seed: int) -> Scores:
        """The falls and the curves of one describer."""
        measured: list[dict[Setting, tuple[float, float]]] = []
        for name, photo in self.photos.items():
            described = describe.frames(photo.image, photo.frames)
            measured.append(
                {
                    setting: inlier_ratios(photo, view, described, describe.frames(view.photo.image, view.photo.frames))
                    for setting, view in self.views[name].items()
                }
            )
        figures, curves = [], []
        for which, keypoints in enumerate(KEYPOINTS):
            for sweep, settings in SWEEPS.items():
                ratios = np.array([[one[setting][which] for setting in settings] for one in measured])
                fall = falls(ratios, settings.index(REFERENCE))
                figures.append(self._figure(f"{sweep} fall{keypoints}", "lower", fall, seed))
                x = [degrees if sweep == "rotation" else factor for degrees, factor in settings]
                points = list(zip(x, ratios.mean(axis=0).tolist(), strict=True))
                base = 2 if sweep == "scale" else None
                curves.append(Curve(f"{sweep}{keypoints}", AXES[sweep], "inlier ratio", points, base))
        reference = np.array([one[REFERENCE][0] for one in measured])
        figures.append(self._figure("inlier ratio at 0°, ×1", "higher", reference, seed))
        return Scores(tuple(figures), tuple(curves))

    def _figure(self, name: str, better: Literal["higher", "lower"], values: Floats, seed: int) -> Figure:
        parts = {photo: bootstrap_mean([value], seed) for photo, value in zip(self.photos, values, strict=True)}
        return Figure(name, better, "photos", bootstrap_mean(values, seed), parts if len(parts) > 1 else {})


def open_sweeps(
    root: str | Path,
    *,
    detector: Detector | None = None,
    max_keypoints: int = 2000,
    photos: int = 3,
    longest_side: int = 1600,
    progress: Progress = no_progress,
) -> SweepsBenchmark:
    """Make the views of photos and find their keypoints, once for all descriptors.

    Args:
        root: a photo, or a folder of them.
        detector: where to look; SIFT's blobs if not given.
        max_keypoints: keypoints of an image, the strongest.
        photos: of a folder, the first by name.
        longest_side: a larger photo is made smaller to this first; the largest view is twice as large.
        progress: told the photo at hand.
    """
    detector = detector or sift()
    if min(max_keypoints, photos, longest_side) < 1:
        raise ArgumentError(
            f"max_keypoints, photos and longest_side: expected 1 or more, got {max_keypoints}, {photos} and {longest_side}"
        )
    root = Path(root)
    paths = list_images(root)[:photos] if root.is_dir() else [root]
    names = [path.relative_to(root).as_posix() if root.is_dir() else path.name for path in paths]
    seen: dict[str, Photo] = {}
    views: dict[str, dict[Setting, View]] = {}
    for number, (name, path) in enumerate(zip(names, paths, strict=True)):
        progress(number, len(paths), name)
        image, _ = shrink(read_grey(path), longest_side)
        seen[name] = look_at(image, detector, max_keypoints, 0)
        if not len(seen[name].frames):
            raise DataError(f"{path}: expected a photo with keypoints of {detector.name}, got one without any")
        settings = dict.fromkeys(setting for sweep in SWEEPS.values() for setting in sweep)
        views[name] = {
            setting: _look_at_view(image, setting, detector, max_keypoints, turn)
            for turn, setting in enumerate(settings, 1)
        }
    progress(len(paths), len(paths), "done")
    protocol = {
        "detector": detector.name,
        "magnification": detector.magnification,
        "keypoints of an image": max_keypoints,
        "photos": len(paths),
        "longest side of a photo": longest_side,
        "matches": "mutual nearest neighbours",
        "inlier": f"within {NEAR:g} px of the coarser image",
        "ties": "lowest index of shuffled keypoints",
        **{f"views of {sweep}": [list(setting) for setting in settings] for sweep, settings in SWEEPS.items()},
    }
    return SweepsBenchmark(Dataset(root.resolve().name, checksum(paths)), protocol, seen, views)


def view_of(photo: NDArray[np.uint8], degrees: float, factor: float) -> tuple[NDArray[np.uint8], Floats]:
    """The whole photo, turned clockwise and scaled about its middle, and the (3, 3) homography to it."""
    import cv2

    height, width = photo.shape
    cos, sin = factor * np.cos(np.radians(degrees)), factor * np.sin(np.radians(degrees))
    linear = np.array([[cos, -sin], [sin, cos]])
    canvas = np.ceil(np.abs(linear) @ [width, height] - 1e-6).astype(int) + 1
    homography = np.eye(3)
    homography[:2, :2] = linear
    homography[:2, 2] = (canvas - 1) / 2 - linear @ [(width - 1) / 2, (height - 1) / 2]
    # The middle falls on a whole or a half pixel; a quarter turn would only move pixels.
    homography[:2, 2] += SHIFT - homography[:2, 2] % 1 if degrees % 90 == 0 and factor == 1 else 0
    if factor < 1:
        # From the blur of a sharp photo to that of one with fewer pixels: what these cannot hold goes first.
        photo = np.asarray(cv2.GaussianBlur(photo, (0, 0), 0.5 * np.sqrt(1 / factor**2 - 1)), np.uint8)
    size = (int(canvas[0]), int(canvas[1]))
    warped = cv2.warpPerspective(photo, homography, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(warped, np.uint8), homography


def inlier_ratios(photo: Photo, view: View, described0: Tensor, described1: Tensor) -> tuple[float, float]:
    """The share of matches that are right, of all keypoints and of those that both images can hold."""
    frames0, frames1 = photo.frames, view.photo.frames
    same = partners(frames0, frames1, view.homography, NEAR)
    sizes0, sizes1 = scales(frames0) * view.factor, scales(frames1)
    common0, common1 = sizes0 >= sizes1.min(initial=np.inf), sizes1 >= sizes0.min(initial=np.inf)
    of_all = _inlier_ratio(same, described0, described1)
    return of_all, _inlier_ratio(same[common0][:, common1], described0[common0], described1[common1])


def falls(ratios: Floats, reference: int) -> Floats:
    """(P,) the share that is lost in the worst of (P, V) views of each photo; all, where the reference had nothing."""
    before, after = ratios[:, reference], ratios.min(axis=1)
    return np.asarray(1 - np.divide(after, before, out=np.zeros_like(before), where=before > 0))


def _look_at_view(
    image: NDArray[np.uint8], setting: Setting, detector: Detector, max_keypoints: int, number: int
) -> View:
    canvas, homography = view_of(image, *setting)
    found = look_at(canvas, detector, max_keypoints, number)
    # Around the photo the canvas is made of repeated pixels.
    inside_photo = within(found.frames, np.asarray(np.linalg.inv(homography), np.float64), image.shape)
    return View(Photo(canvas, found.frames[inside_photo]), setting[1], homography)


def _inlier_ratio(same: NDArray[np.bool_], described0: Tensor, described1: Tensor) -> float:
    pairs = match_descriptors(described0, described1)[0].numpy()
    return float(same[tuple(pairs.T)].mean()) if len(pairs) else 0.0
