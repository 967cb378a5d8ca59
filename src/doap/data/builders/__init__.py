"""Builders of patch sets: from a COLMAP model, photos, and published datasets."""

from doap.data.builders.from_colmap import build_from_colmap
from doap.data.builders.from_images import build_from_images
from doap.data.builders.from_public import build_from_public

__all__ = ["build_from_colmap", "build_from_images", "build_from_public"]
