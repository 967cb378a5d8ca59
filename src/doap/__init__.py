"""Local image descriptors learned by directly optimising Average Precision."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doap._support.errors import ArgumentError as ArgumentError
    from doap._support.errors import DataError as DataError
    from doap._support.errors import DoapError as DoapError
    from doap._support.errors import MissingExtra as MissingExtra
    from doap._support.errors import ShapeError as ShapeError
    from doap.collection import extract_folder as extract_folder
    from doap.collection.localization import Localizer as Localizer
    from doap.describer import Describer as Describer
    from doap.describer import PatchDescriber as PatchDescriber
    from doap.descriptor import Descriptor as Descriptor
    from doap.descriptor import DescriptorSpec as DescriptorSpec
    from doap.descriptor import load as load
    from doap.evaluation import compare as compare
    from doap.evaluation import evaluate as evaluate
    from doap.export import export_descriptor as export_descriptor
    from doap.export.colmap import write_colmap as write_colmap
    from doap.export.hloc import write_hloc as write_hloc
    from doap.export.opensfm import write_opensfm as write_opensfm
    from doap.extractor import Extractor as Extractor
    from doap.loss import HardestTriplet as HardestTriplet
    from doap.loss import ListwiseAP as ListwiseAP
    from doap.matching import Matcher as Matcher
    from doap.pipeline import extract as extract
    from doap.pipeline import match as match
    from doap.pipeline import match_images as match_images
    from doap.pipeline import verify as verify
    from doap.training import train as train
    from doap.types import Features as Features
    from doap.types import Geometry as Geometry
    from doap.types import Matches as Matches
    from doap.types import Relation as Relation

__version__ = "0.1.0"

# Submodules are imported on first access: importing torch takes seconds, and `doap --help` does not
# need it.
_MODULES = {
    "ArgumentError": "doap._support.errors",
    "DataError": "doap._support.errors",
    "Describer": "doap.describer",
    "Descriptor": "doap.descriptor",
    "DescriptorSpec": "doap.descriptor",
    "DoapError": "doap._support.errors",
    "Extractor": "doap.extractor",
    "Features": "doap.types",
    "Geometry": "doap.types",
    "HardestTriplet": "doap.loss",
    "ListwiseAP": "doap.loss",
    "Localizer": "doap.collection.localization",
    "Matcher": "doap.matching",
    "Matches": "doap.types",
    "MissingExtra": "doap._support.errors",
    "PatchDescriber": "doap.describer",
    "Relation": "doap.types",
    "ShapeError": "doap._support.errors",
    "compare": "doap.evaluation",
    "evaluate": "doap.evaluation",
    "export_descriptor": "doap.export",
    "extract": "doap.pipeline",
    "extract_folder": "doap.collection",
    "load": "doap.descriptor",
    "match": "doap.pipeline",
    "match_images": "doap.pipeline",
    "train": "doap.training",
    "verify": "doap.pipeline",
    "write_colmap": "doap.export.colmap",
    "write_hloc": "doap.export.hloc",
    "write_opensfm": "doap.export.opensfm",
}

__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'doap' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
