"""Local image descriptors learned by directly optimising Average Precision."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doap.descriptor import Descriptor, load
    from doap.errors import DoapError
    from doap.losses import HardestTriplet, ListwiseAP
    from doap.pipeline import extract, match, verify
    from doap.types import Features, Geometry, Relation

__version__ = "0.1.0"

# torch takes seconds to import, and `doap --help` must not wait for it: a name brings its room in when it is used.
_HOMES = {
    "Descriptor": "doap.descriptor",
    "DoapError": "doap.errors",
    "Features": "doap.types",
    "Geometry": "doap.types",
    "HardestTriplet": "doap.losses",
    "ListwiseAP": "doap.losses",
    "Relation": "doap.types",
    "extract": "doap.pipeline",
    "load": "doap.descriptor",
    "match": "doap.pipeline",
    "verify": "doap.pipeline",
}

__all__ = [
    "Descriptor",
    "DoapError",
    "Features",
    "Geometry",
    "HardestTriplet",
    "ListwiseAP",
    "Relation",
    "__version__",
    "extract",
    "load",
    "match",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'doap' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
