"""Names at the edge: what a user types for a descriptor or a detector becomes an object here, and nowhere else."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doap.errors import DataError

if TYPE_CHECKING:
    from doap.baselines import Describer
    from doap.detectors import Detector

DESCRIPTOR_HELP = (
    "doap-128, doap-256bit, a peer's name, a file (*.safetensors, *.onnx, TFeat's *.params), or a function of patches "
    "in your own code as package.module:function or file.py:function, which is imported and run."
)


def open_descriptor(text: str) -> Describer:
    """A descriptor from what `DESCRIPTOR_HELP` says."""
    from doap.baselines import BASELINES, from_function, tfeat
    from doap.descriptor import SHIPPED, load

    if text in SHIPPED:
        return load(text)
    if text in BASELINES:
        return BASELINES[text]()
    path = Path(text)
    if path.is_file():
        return tfeat(path) if path.suffix == ".params" else load(path)
    module, colon, function = text.rpartition(":")
    if colon and function.isidentifier():
        found = _function(module, function)
        return from_function(found, getattr(found, "patch_size", 32), function)
    raise DataError(
        f"{text}: expected a file (*.safetensors, *.onnx, *.params), module:function, or one of "
        f"{', '.join([*SHIPPED, *BASELINES])}, got none of them"
    )


def open_descriptors(texts: Sequence[str]) -> tuple[dict[str, Describer], dict[str, Path]]:
    """Descriptors by short names that differ, and the files of those that were read from one.

    The word `peers` stands for all peers that need no file, `controls` for the descriptors that must score chance.
    """
    from doap.baselines import BASELINES
    from doap.descriptor import SHIPPED
    from doap.evaluation.controls import CONTROLS

    words: dict[str, Iterable[str]] = {"peers": BASELINES, "controls": CONTROLS}
    describers: dict[str, Describer] = {}
    files: dict[str, Path] = {}
    for text in dict.fromkeys(one for word in texts for one in words.get(word, [word])):
        path = SHIPPED.get(text) or Path(text)
        is_file = text not in BASELINES and text not in CONTROLS and path.is_file()
        short = path.stem if is_file else text.rpartition(":")[2]
        name = next(name for name in _numbered(short) if name not in describers)
        describers[name] = CONTROLS[text]() if text in CONTROLS else open_descriptor(text)
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


def _function(module: str, name: str) -> Callable[..., Any]:
    """A function of somebody's module, or of a file, both of which run when they are imported."""
    try:
        if module.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(module).stem, module)
            assert spec is not None
            assert spec.loader is not None
            imported = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(imported)
        else:
            imported = importlib.import_module(module)
    # Whatever their code does.
    except Exception as error:
        raise DataError(
            f"{module}:{name}: expected a module to import, got {type(error).__name__}: {error}; "
            "a file is given as file.py:function"
        ) from error
    found = getattr(imported, name, None)
    if not callable(found):
        raise DataError(f"{module}:{name}: expected a function of the module, got {found!r}; check the name")
    return found  # type: ignore[no-any-return]
