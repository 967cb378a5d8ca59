"""An index of the local descriptors of many images: build it, change it, search it."""

from doap.scale.index.build import Change, add_images, build_index, check_extractor, remove_images
from doap.scale.index.engine import IndexKind, IndexPlan, plan_index
from doap.scale.index.index import Index, IndexInfo

__all__ = [
    "Change",
    "Index",
    "IndexInfo",
    "IndexKind",
    "IndexPlan",
    "add_images",
    "build_index",
    "check_extractor",
    "plan_index",
    "remove_images",
]
