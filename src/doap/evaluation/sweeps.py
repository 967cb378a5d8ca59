"""Benchmark `sweeps`: how matching degrades when the camera rotates or moves closer.

Each photo is rotated by 0 to 180° about its centre, and scaled by ½ to 2, onto a canvas that contains all of it.
Keypoints are detected in each view and matched with those of the photo as mutual nearest neighbours. The inlier
ratio is the share of matches within 3 pixels of the true position, in pixels of the coarser image; it is 0 without
matches.

Fine keypoints of the sharper image do not exist in the coarser one and cannot be matched by any descriptor. A second
ratio therefore uses only the keypoints that are no finer than the finest keypoint of the other image.

A photo matched with itself has a ratio of 1, which no resampled view can reach. The views at 0° and ×1 are therefore
resampled too, shifted by a fraction of a pixel. They are the reference, and a fall is the share of the reference
ratio that is lost in the worst view. A descriptor that is never correct has a fall of 1. One that is rarely correct
can have a small fall, so the reference ratio is a figure as well. At chance level, it is about 0.001.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from doap._support.errors import DataError
from doap.detectors import Detector, sift
from doap.evaluation.benchmark import BenchmarkSettings, DetectorSetting, dataset_of
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.image_pair import Photo, detect_photo
from doap.evaluation.result import Curve, Direction, Figure, Scores
from doap.images import list_images, read_grey, scales, shrink
from doap.images.frames import corresponding, visible
from doap.matching import match_descriptors
from doap.types import Progress, no_progress

Floats = NDArray[np.float64]
ViewParameters = tuple[float, float]
"""Rotation in degrees and scale factor."""

REFERENCE: ViewParameters = (0.0, 1.0)
SWEEPS: dict[str, list[ViewParameters]] = {
    "rotation": [(float(degrees), 1.0) for degrees in range(0, 181, 15)],
    "scale": [(0.0, 2 ** (step / 4)) for step in range(-4, 5)],
}
AXES = {"rotation": "rotated by, in degrees", "scale": "scaled by"}
KEYPOINTS = ("", ", keypoints in both")
"""Suffixes of the figures of all keypoints, and of the keypoints that both images can contain."""

# Between 0, where no pixel is interpolated, and ½, where interpolation is strongest, as in a rotated view.
SHIFT = 0.3
INLIER_PIXELS = 3.0


@dataclass(frozen=True, eq=False)
class SweepView:
    """A view of a photo, with its keypoints, scale factor and (3, 3) homography from the photo."""

    photo: Photo
    factor: float
    homography: Floats


class SweepsBenchmark:
    """Photos and their views with keypoints, which all descriptors share. `root` is a photo or a folder of photos."""

    class Settings(BenchmarkSettings):
        """Settings of the benchmark `sweeps`."""

        detector: DetectorSetting = Field(default_factory=sift, description="Keypoint detector; SIFT by default.")
        max_keypoints: int = Field(2000, ge=1, description="Maximum number of keypoints per image.")
        photos: int = Field(3, ge=1, description="Number of photos of a folder, the first by name.")
        longest_side: int = Field(
            1600, ge=1, description="Larger photos are reduced to this side; the largest view is twice as large."
        )

    name = "sweeps"
    needs: Needs = "frames"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        root, chosen = Path(root), self.Settings.parse(settings)
        paths = list_images(root)[: chosen.photos] if root.is_dir() else [root]
        names = [path.relative_to(root).as_posix() if root.is_dir() else path.name for path in paths]
        self.detector = chosen.detector
        self.photos: dict[str, Photo] = {}
        self.views: dict[str, dict[ViewParameters, SweepView]] = {}
        for number, (name, path) in enumerate(zip(names, paths, strict=True)):
            progress(number, len(paths), name)
            image, _ = shrink(read_grey(path), chosen.longest_side)
            photo = detect_photo(image, chosen.detector, chosen.max_keypoints, 0)
            if not len(photo.frames):
                raise DataError(f"{path}: {chosen.detector.name} detects no keypoints in this photo.")
            self.photos[name], self.views[name] = photo, _make_views(image, chosen.detector, chosen.max_keypoints)
        progress(len(paths), len(paths), "done")
        self.dataset = dataset_of(root, paths)
        self.protocol: dict[str, Any] = {
            "detector": chosen.detector.name,
            "magnification": chosen.detector.magnification,
            "keypoints of an image": chosen.max_keypoints,
            "photos": len(paths),
            "longest side of a photo": chosen.longest_side,
            "matches": "mutual nearest neighbours",
            "inlier": f"within {INLIER_PIXELS:g} px of the coarser image",
            "ties": "lowest index of shuffled keypoints",
            "resampled": "photos",
            **{f"views of {sweep}": [list(view) for view in views] for sweep, views in SWEEPS.items()},
        }

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score the falls and the inlier ratios of one descriptor."""
        measured = [self._inlier_ratios(candidate, name) for name in self.photos]
        figures, curves = [], []
        for which, keypoints in enumerate(KEYPOINTS):
            for sweep, views in SWEEPS.items():
                ratios = np.array([[ratio[view][which] for view in views] for ratio in measured])
                fall = falls(ratios, views.index(REFERENCE))
                figures.append(self._figure(f"{sweep} fall{keypoints}", "lower", fall, seed))
                x = [degrees if sweep == "rotation" else factor for degrees, factor in views]
                points = list(zip(x, ratios.mean(axis=0).tolist(), strict=True))
                base = 2 if sweep == "scale" else None
                curves.append(Curve(f"{sweep}{keypoints}", AXES[sweep], "inlier ratio", points, base))
        reference = np.array([ratio[REFERENCE][0] for ratio in measured])
        figures.append(self._figure("inlier ratio at 0°, ×1", "higher", reference, seed))
        return Scores(tuple(figures), tuple(curves))

    def _inlier_ratios(self, candidate: Candidate, name: str) -> dict[ViewParameters, tuple[float, float]]:
        """Return the two inlier ratios of each view of a photo; see `inlier_ratios`."""
        photo = self.photos[name]
        descriptors0 = candidate.describe(photo.image, photo.frames)
        ratios = {}
        for parameters, view in self.views[name].items():
            descriptors1 = candidate.describe(view.photo.image, view.photo.frames)
            ratios[parameters] = inlier_ratios(photo, view, descriptors0, descriptors1)
        return ratios

    def _figure(self, name: str, better: Direction, values: Floats, seed: int) -> Figure:
        parts = {photo: bootstrap_mean([value], seed) for photo, value in zip(self.photos, values, strict=True)}
        return Figure(name, better, "photos", bootstrap_mean(values, seed), parts if len(parts) > 1 else {})


def make_view(photo: NDArray[np.uint8], degrees: float, factor: float) -> tuple[NDArray[np.uint8], Floats]:
    """Rotate a photo clockwise and scale it about its centre; return the view and its (3, 3) homography."""
    import cv2

    height, width = photo.shape
    cos, sin = factor * np.cos(np.radians(degrees)), factor * np.sin(np.radians(degrees))
    linear = np.array([[cos, -sin], [sin, cos]])
    canvas = np.ceil(np.abs(linear) @ [width, height] - 1e-6).astype(int) + 1
    homography = np.eye(3)
    homography[:2, :2] = linear
    homography[:2, 2] = (canvas - 1) / 2 - linear @ [(width - 1) / 2, (height - 1) / 2]
    # Multiples of 90° without scaling would only permute pixels, so they are shifted.
    homography[:2, 2] += SHIFT - homography[:2, 2] % 1 if degrees % 90 == 0 and factor == 1 else 0
    if factor < 1:
        # Low-pass filter before downsampling: from the blur of a sharp photo to that of one with fewer pixels.
        photo = np.asarray(cv2.GaussianBlur(photo, (0, 0), 0.5 * np.sqrt(1 / factor**2 - 1)), np.uint8)
    size = (int(canvas[0]), int(canvas[1]))
    warped = cv2.warpPerspective(photo, homography, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(warped, np.uint8), homography


def inlier_ratios(photo: Photo, view: SweepView, descriptors0: Tensor, descriptors1: Tensor) -> tuple[float, float]:
    """Return the inlier ratio of all keypoints, and of the keypoints that both images can contain."""
    frames0, frames1 = photo.frames, view.photo.frames
    same = corresponding(frames0, frames1, view.homography, INLIER_PIXELS)
    sizes0, sizes1 = scales(frames0) * view.factor, scales(frames1)
    common0, common1 = sizes0 >= sizes1.min(initial=np.inf), sizes1 >= sizes0.min(initial=np.inf)
    ratio = _inlier_ratio(same, descriptors0, descriptors1)
    return ratio, _inlier_ratio(same[common0][:, common1], descriptors0[common0], descriptors1[common1])


def falls(ratios: Floats, reference: int) -> Floats:
    """Return the share (P,) of the reference ratio lost in the worst of (P, V) views; 1 if the reference is 0."""
    before, after = ratios[:, reference], ratios.min(axis=1)
    return np.asarray(1 - np.divide(after, before, out=np.zeros_like(before), where=before > 0))


def _make_views(image: NDArray[np.uint8], detector: Detector, max_keypoints: int) -> dict[ViewParameters, SweepView]:
    """Make all views of a photo and detect their keypoints."""
    views = {}
    every = dict.fromkeys(parameters for sweep in SWEEPS.values() for parameters in sweep)
    for number, (degrees, factor) in enumerate(every, 1):
        canvas, homography = make_view(image, degrees, factor)
        detected = detect_photo(canvas, detector, max_keypoints, number)
        # The canvas around the photo consists of replicated pixels.
        in_photo = visible(detected.frames, np.asarray(np.linalg.inv(homography), np.float64), image.shape)
        views[degrees, factor] = SweepView(Photo(canvas, detected.frames[in_photo]), factor, homography)
    return views


def _inlier_ratio(same: NDArray[np.bool_], descriptors0: Tensor, descriptors1: Tensor) -> float:
    pairs = match_descriptors(descriptors0, descriptors1)[0].numpy()
    return float(same[tuple(pairs.T)].mean()) if len(pairs) else 0.0
