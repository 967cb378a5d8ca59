"""Which matches agree on one geometry of two images."""

from doap.geometry.estimate import GeometryModel, estimate_geometry

__all__ = ["GeometryModel", "estimate_geometry"]
