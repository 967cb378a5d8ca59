"""Image indexes: build, update and search the local descriptors of many images."""

from doap.scale.index.build import IndexChange, add_images, build_index, check_extractor, remove_images
from doap.scale.index.engine import IndexKind, IndexPlan, plan_index
from doap.scale.index.index import Index, IndexInfo

__all__ = [
    "Index",
    "IndexChange",
    "IndexInfo",
    "IndexKind",
    "IndexPlan",
    "add_images",
    "build_index",
    "check_extractor",
    "plan_index",
    "remove_images",
]
