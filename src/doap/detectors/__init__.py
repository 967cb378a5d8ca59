"""Thin adapters over other libraries' detectors of keypoints."""

from doap.detectors.sift import detect_sift

__all__ = ["detect_sift"]
