"""Local image descriptors learned by directly optimising Average Precision."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doap.calibration import calibrate
    from doap.describer import Describer, PatchDescriber
    from doap.descriptor import Descriptor, DescriptorSpec, load
    from doap.errors import DoapError
    from doap.evaluation import compare, evaluate
    from doap.export import export_descriptor
    from doap.export.colmap import write_colmap
    from doap.export.features import write_features
    from doap.export.hloc import write_hloc
    from doap.extractor import Extractor
    from doap.localization import Localizer
    from doap.loss import HardestTriplet, ListwiseAP
    from doap.matching import Matcher
    from doap.pipeline import extract, match, match_images, verify
    from doap.scale import extract_folder
    from doap.training import train
    from doap.types import Features, Geometry, Matches, Relation

__version__ = "0.1.0"

# Submodules are imported on first access: importing torch takes seconds, and `doap --help` does not
# need it.
_MODULES = {
    "Describer": "doap.describer",
    "Descriptor": "doap.descriptor",
    "DescriptorSpec": "doap.descriptor",
    "DoapError": "doap.errors",
    "Extractor": "doap.extractor",
    "Features": "doap.types",
    "Geometry": "doap.types",
    "HardestTriplet": "doap.loss",
    "ListwiseAP": "doap.loss",
    "Localizer": "doap.localization",
    "Matcher": "doap.matching",
    "Matches": "doap.types",
    "PatchDescriber": "doap.describer",
    "Relation": "doap.types",
    "calibrate": "doap.calibration",
    "compare": "doap.evaluation",
    "evaluate": "doap.evaluation",
    "export_descriptor": "doap.export",
    "extract": "doap.pipeline",
    "extract_folder": "doap.scale",
    "load": "doap.descriptor",
    "match": "doap.pipeline",
    "match_images": "doap.pipeline",
    "train": "doap.training",
    "verify": "doap.pipeline",
    "write_colmap": "doap.export.colmap",
    "write_features": "doap.export.features",
    "write_hloc": "doap.export.hloc",
}

__all__ = [
    "Describer",
    "Descriptor",
    "DescriptorSpec",
    "DoapError",
    "Extractor",
    "Features",
    "Geometry",
    "HardestTriplet",
    "ListwiseAP",
    "Localizer",
    "Matcher",
    "Matches",
    "PatchDescriber",
    "Relation",
    "__version__",
    "calibrate",
    "compare",
    "evaluate",
    "export_descriptor",
    "extract",
    "extract_folder",
    "load",
    "match",
    "match_images",
    "train",
    "verify",
    "write_colmap",
    "write_features",
    "write_hloc",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'doap' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
