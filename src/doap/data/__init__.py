"""Patch sets: build, open, check, split, merge and preview them.

Every `doap data` command calls one function of this module. Samplers, batches and readers are in the submodules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doap.data.builders import (
        build_from_colmap,
        build_from_images,
        build_from_public,
        build_from_tracks,
        write_track_file,
    )
    from doap.data.preview import draw_preview
    from doap.data.store import PatchSet, SetSummary, check_set, merge_sets, open_set, split_set
    from doap.data.writer import SetWriter, UnitGroups
    from doap.images.synthetic_views import SyntheticViews

# Imported on first access, because samplers and losses do not need pyarrow and the readers.
_NAMES = {
    "doap.data.builders": (
        "build_from_colmap",
        "build_from_images",
        "build_from_public",
        "build_from_tracks",
        "write_track_file",
    ),
    "doap.data.preview": ("draw_preview",),
    "doap.data.store": ("PatchSet", "SetSummary", "check_set", "merge_sets", "open_set", "split_set"),
    "doap.data.writer": ("SetWriter", "UnitGroups"),
    "doap.images.synthetic_views": ("SyntheticViews",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "PatchSet",
    "SetSummary",
    "SetWriter",
    "SyntheticViews",
    "UnitGroups",
    "build_from_colmap",
    "build_from_images",
    "build_from_public",
    "build_from_tracks",
    "check_set",
    "draw_preview",
    "merge_sets",
    "open_set",
    "split_set",
    "write_track_file",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'doap.data' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
