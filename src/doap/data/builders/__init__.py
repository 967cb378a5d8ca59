"""Builders of patch sets: from a COLMAP model, photos, track files, and published datasets."""

from doap.data.builders.from_colmap import build_from_colmap
from doap.data.builders.from_images import build_from_images
from doap.data.builders.from_public import build_from_public
from doap.data.builders.from_tracks import build_from_tracks, write_track_file

__all__ = ["build_from_colmap", "build_from_images", "build_from_public", "build_from_tracks", "write_track_file"]
