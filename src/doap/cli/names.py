"""Names at the edge: what a user types for a descriptor or a detector becomes an object here, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from doap.errors import DataError, check_choice

if TYPE_CHECKING:
    from doap.detectors import Detector
    from doap.peers import Describer


def open_descriptor(text: str) -> Describer:
    """A descriptor from a peer's name (`rootsift`) or a file (`my.safetensors`)."""
    from doap.descriptor import load
    from doap.peers import PEERS

    if text in PEERS:
        return PEERS[text]()
    if not Path(text).is_file():
        raise DataError(f"{text}: expected a *.safetensors file or one of {', '.join(PEERS)}, got neither")
    return load(text)


def open_detector(name: str) -> Detector:
    """A detector from its name."""
    from doap.detectors import DETECTORS

    check_choice(name, tuple(DETECTORS), name="detector")
    return DETECTORS[name]()
