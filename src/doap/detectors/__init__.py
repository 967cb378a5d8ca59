"""Keypoint detectors of OpenCV, COLMAP and kornia behind one interface."""

from collections.abc import Callable

from doap._support.errors import ArgumentError
from doap._support.plugins import registered
from doap.detectors.affine import AffineDetector, affine
from doap.detectors.colmap import ColmapDetector, colmap, colmap_default
from doap.detectors.detector import Detector
from doap.detectors.opencv import OpenCVDetector, akaze, fast, orb, sift

__all__ = [
    "DETECTORS",
    "AffineDetector",
    "ColmapDetector",
    "Detector",
    "OpenCVDetector",
    "affine",
    "akaze",
    "as_detector",
    "colmap",
    "colmap_default",
    "fast",
    "orb",
    "sift",
]

DETECTORS: dict[str, Callable[[], Detector]] = {
    "sift": sift,
    "orb": orb,
    "fast": fast,
    "akaze": akaze,
    "affine": affine,
    "colmap": colmap,
    "colmap-default": colmap_default,
}
"""Detectors by name; `DETECTORS[name]()` creates one."""


def as_detector(detector: str | Detector | None) -> Detector:
    """Return the detector of a name in `DETECTORS` or of an installed package, or the detector itself. None is SIFT.

    >>> as_detector("orb").name, as_detector(None).name
    ('orb', 'sift')
    """
    if detector is None:
        return sift()
    if isinstance(detector, str):
        detector = registered(DETECTORS, "detector", detector)()
    if not isinstance(detector, Detector) or isinstance(detector, type):
        raise ArgumentError(
            f"detector: expected one of {', '.join(DETECTORS)} or a Detector, got {type(detector).__name__}. "
            "Wrap a detector of OpenCV with doap.detectors.OpenCVDetector."
        )
    return detector
