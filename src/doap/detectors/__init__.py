"""Thin adapters over other libraries' detectors of keypoints."""

from collections.abc import Callable

from doap.detectors.detector import Detector, OpenCVDetector
from doap.detectors.sift import sift

__all__ = ["DETECTORS", "Detector", "OpenCVDetector", "sift"]

DETECTORS: dict[str, Callable[[], Detector]] = {"sift": sift}
