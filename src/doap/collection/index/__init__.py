"""Image indexes: build, update and search the local descriptors of many images."""

from doap.collection.index.changes import (
    Compaction,
    add_images,
    build_index,
    compact_index,
    remove_images,
)
from doap.collection.index.faiss_index import Index, IndexInfo, as_index
from doap.collection.index.milvus import MilvusIndex
from doap.collection.index.plan import IndexKind, IndexPlan, plan_index
from doap.collection.index.protocol import DescriptorIndex, IndexChange, IndexedImage, check_extractor

__all__ = [
    "Compaction",
    "DescriptorIndex",
    "Index",
    "IndexChange",
    "IndexInfo",
    "IndexKind",
    "IndexPlan",
    "IndexedImage",
    "MilvusIndex",
    "add_images",
    "as_index",
    "build_index",
    "check_extractor",
    "compact_index",
    "plan_index",
    "remove_images",
]
