"""Builders of patch-group sets: from a COLMAP model, and from plain photographs."""

from doap.data.builders.from_colmap import build_from_colmap
from doap.data.builders.from_images import build_from_images

__all__ = ["build_from_colmap", "build_from_images"]
