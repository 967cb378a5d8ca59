"""Collections of images: features of a folder or an archive, by processes of one machine or by a cluster.

Nothing of it is needed for two images, and nothing of an engine is imported before it is asked for.
"""

from doap.scale.extraction import Engine, Extracted, extract_folder
from doap.scale.extractor import Extractor, Stored, extractor_of
from doap.scale.features import FeatureSet, StoredImage

__all__ = [
    "Engine",
    "Extracted",
    "Extractor",
    "FeatureSet",
    "Stored",
    "StoredImage",
    "extract_folder",
    "extractor_of",
]
