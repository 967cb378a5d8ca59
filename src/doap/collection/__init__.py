"""Large image collections: extract features of a folder or an archive, index and search them, and select pairs.

Two images need nothing of this package. The libraries of an engine are imported when it runs.
"""

from doap.collection.extraction import Engine, ExtractionSummary, extract_folder
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import FeatureSet, StoredImage
from doap.collection.index import (
    DescriptorIndex,
    Index,
    IndexChange,
    IndexInfo,
    IndexKind,
    MilvusIndex,
    build_index,
)
from doap.collection.pairs import select_pairs, write_pairs
from doap.collection.rows import export_rows
from doap.collection.search import SearchResult, extract_query, find_itself, search_images
from doap.collection.vocabulary import VocabularySummary, build_vocabulary

__all__ = [
    "DescriptorIndex",
    "Engine",
    "ExtractionSummary",
    "ExtractorInfo",
    "FeatureSet",
    "Index",
    "IndexChange",
    "IndexInfo",
    "IndexKind",
    "MilvusIndex",
    "SearchResult",
    "StoredImage",
    "VocabularySummary",
    "build_index",
    "build_vocabulary",
    "export_rows",
    "extract_folder",
    "extract_query",
    "find_itself",
    "search_images",
    "select_pairs",
    "write_pairs",
]
