"""Robust two-view geometry."""

from doap.geometry.estimate import GeometryModel, estimate_geometry

__all__ = ["GeometryModel", "estimate_geometry"]
