"""Robust two-view geometry."""

from doap.geometry.estimate import MIN_INLIER_RATIO, MIN_INLIERS, GeometryModel, estimate_geometry, is_verified

__all__ = ["MIN_INLIERS", "MIN_INLIER_RATIO", "GeometryModel", "estimate_geometry", "is_verified"]
