"""Names at the edge: what a user types for a descriptor or a detector becomes an object here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doap.describer import Describer
    from doap.detectors import Detector

DESCRIPTOR_HELP = (
    "doap-128, doap-256bit, a peer's name, a file (*.safetensors, *.onnx, TFeat's *.params), or a function of patches "
    "in your own code as package.module:function or file.py:function, which is imported and run."
)


def open_descriptors(texts: Sequence[str]) -> tuple[dict[str, Describer], dict[str, Path]]:
    """Descriptors by short names that differ, and the files of those that were read from one.

    The word `peers` stands for all peers that need no file, `controls` for the descriptors that must score chance.
    """
    from doap.baselines import BASELINES
    from doap.descriptor import SHIPPED, load
    from doap.evaluation.controls import CONTROLS

    words: dict[str, Iterable[str]] = {"peers": BASELINES, "controls": CONTROLS}
    describers: dict[str, Describer] = {}
    files: dict[str, Path] = {}
    for text in dict.fromkeys(one for word in texts for one in words.get(word, [word])):
        path = SHIPPED.get(text) or Path(text)
        is_file = text not in BASELINES and text not in CONTROLS and path.is_file()
        short = path.stem if is_file else text.rpartition(":")[2]
        name = next(name for name in _numbered(short) if name not in describers)
        describers[name] = CONTROLS[text]() if text in CONTROLS else load(text)
        if is_file:
            files[name] = path
    return describers, files


def open_detector(name: str) -> Detector:
    """A detector from its name."""
    from doap.detectors import as_detector

    return as_detector(name)


def _numbered(name: str) -> Iterator[str]:
    """name, name-2, name-3, …"""
    yield name
    yield from (f"{name}-{number}" for number in count(2))
