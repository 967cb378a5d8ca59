"""Patch sets: build, open, check, split, merge and preview them.

Every `doap data` command calls one function of this module. Samplers, batches and readers are in
the submodules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doap.data.builders import build_from_colmap, build_from_images, build_from_pairs, build_from_public
    from doap.data.preview import draw_preview
    from doap.data.readers import FolderCheck, check_folder
    from doap.data.store import PatchSet, SetSummary, check_set, merge_sets, open_set, split_set
    from doap.data.writer import SetWriter, UnitGroups
    from doap.images.synthetic_views import SyntheticViews

# Submodules are imported on first access, because pyarrow and the readers are not needed by
# samplers and losses.
_MODULES = {
    "FolderCheck": "doap.data.readers",
    "PatchSet": "doap.data.store",
    "SetSummary": "doap.data.store",
    "SetWriter": "doap.data.writer",
    "SyntheticViews": "doap.images.synthetic_views",
    "UnitGroups": "doap.data.writer",
    "build_from_colmap": "doap.data.builders",
    "build_from_images": "doap.data.builders",
    "build_from_pairs": "doap.data.builders",
    "build_from_public": "doap.data.builders",
    "check_folder": "doap.data.readers",
    "check_set": "doap.data.store",
    "draw_preview": "doap.data.preview",
    "merge_sets": "doap.data.store",
    "open_set": "doap.data.store",
    "split_set": "doap.data.store",
}

__all__ = [
    "FolderCheck",
    "PatchSet",
    "SetSummary",
    "SetWriter",
    "SyntheticViews",
    "UnitGroups",
    "build_from_colmap",
    "build_from_images",
    "build_from_pairs",
    "build_from_public",
    "check_folder",
    "check_set",
    "draw_preview",
    "merge_sets",
    "open_set",
    "split_set",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'doap.data' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
