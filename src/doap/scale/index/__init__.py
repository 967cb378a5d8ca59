"""Image indexes: build, update and search the local descriptors of many images."""

from doap.scale.index.base import BaseIndex
from doap.scale.index.build import build_index, check_extractor, train_index
from doap.scale.index.engine import IndexKind, IndexPlan, plan_index
from doap.scale.index.index import Index, IndexInfo
from doap.scale.index.sharded import ShardedIndex, as_index, open_index
from doap.scale.index.update import Compaction, IndexChange, add_images, compact_index, remove_images

__all__ = [
    "BaseIndex",
    "Compaction",
    "Index",
    "IndexChange",
    "IndexInfo",
    "IndexKind",
    "IndexPlan",
    "ShardedIndex",
    "add_images",
    "as_index",
    "build_index",
    "check_extractor",
    "compact_index",
    "open_index",
    "plan_index",
    "remove_images",
    "train_index",
]
