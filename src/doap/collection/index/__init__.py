"""Image indexes: build, update and search the local descriptors of many images."""

from doap.collection.index.folder import Index, IndexInfo, as_index, build_index
from doap.collection.index.milvus import MilvusIndex
from doap.collection.index.protocol import (
    DescriptorIndex,
    IndexChange,
    IndexedImage,
    IndexKind,
    check_extractor,
    choose_lists,
)

__all__ = [
    "DescriptorIndex",
    "Index",
    "IndexChange",
    "IndexInfo",
    "IndexKind",
    "IndexedImage",
    "MilvusIndex",
    "as_index",
    "build_index",
    "check_extractor",
    "choose_lists",
]
