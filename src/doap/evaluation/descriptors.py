"""Descriptors to evaluate: load them by name and give them short, unique names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from doap.baselines import BASELINES, PIPELINES
from doap.describer import Describer
from doap.descriptor import SHIPPED, load
from doap.device import Precision
from doap.evaluation.controls import CONTROLS

DescriptorSource = str | Path | Describer
"""A name, a file or `module:function` as in `doap.load`, or a describer."""

GROUPS: dict[str, Iterable[str]] = {"baselines": BASELINES, "pipelines": PIPELINES, "controls": CONTROLS}
"""Words that stand for several descriptors."""


@runtime_checkable
class Named(Protocol):
    """A describer with a name for tables, such as a baseline."""

    @property
    def name(self) -> str:
        """Name in tables."""


@dataclass(frozen=True)
class OpenedDescriber:
    """A describer and the file it was loaded from, if any."""

    describer: Describer
    file: Path | None = None


def open_describers(
    descriptors: DescriptorSource | Sequence[DescriptorSource] | Mapping[str, DescriptorSource],
    *,
    device: str | torch.device = "auto",
    precision: Precision = "auto",
) -> dict[str, OpenedDescriber]:
    """Load descriptors, by short and unique names.

    >>> list(open_describers(["rootsift", "controls"]))
    ['rootsift', 'constant', 'random', 'shuffled']

    Args:
        descriptors: One descriptor, several, or a mapping from the names to use to descriptors. A descriptor is
            anything that `doap.load` accepts, the name of a control, or a describer. In a sequence, the word
            `baselines` stands for all baselines in `BASELINES`, `pipelines` for all learned pipelines in `PIPELINES`,
            and `controls` for all controls in `CONTROLS`.
        device: Device of the networks; see `doap.load`.
        precision: Precision of the networks; see `doap.load`.

    Returns:
        Describers by name. A file is named by its stem, a function by its own name; later ones of the same name get
        the suffix -2, -3, ….
    """
    if isinstance(descriptors, Mapping):
        return {name: _open(source, device, precision) for name, source in descriptors.items()}
    sources = [descriptors] if isinstance(descriptors, str | Path | Describer) else descriptors
    opened: dict[str, OpenedDescriber] = {}
    for source in _expand(sources):
        name = next(name for name in _numbered(_short_name(source)) if name not in opened)
        opened[name] = _open(source, device, precision)
    return opened


def _expand(sources: Sequence[DescriptorSource]) -> Iterator[DescriptorSource]:
    """Replace group words by their members and drop repeated names and files."""
    known: set[str] = set()
    for source in sources:
        if isinstance(source, Describer):
            yield source
            continue
        for name in GROUPS.get(str(source), [str(source)]):
            if name not in known:
                known.add(name)
                yield name


def _open(source: DescriptorSource, device: str | torch.device, precision: Precision) -> OpenedDescriber:
    if isinstance(source, Describer):
        return OpenedDescriber(source)
    if str(source) in CONTROLS:
        return OpenedDescriber(CONTROLS[str(source)]())
    return OpenedDescriber(load(source, device=device, precision=precision), _file_of(source))


def _file_of(source: str | Path) -> Path | None:
    """Return the file that a descriptor is loaded from; None for baselines, pipelines, controls and functions."""
    if any(str(source) in names for names in GROUPS.values()):
        return None
    path = SHIPPED.get(str(source)) or Path(source)
    return path if path.is_file() else None


def _short_name(source: DescriptorSource) -> str:
    if isinstance(source, Describer):
        return source.name if isinstance(source, Named) else type(source).__name__.lower()
    file = _file_of(source)
    return file.stem if file else str(source).rpartition(":")[2]


def _numbered(name: str) -> Iterator[str]:
    """Yield name, name-2, name-3, …."""
    yield name
    yield from (f"{name}-{number}" for number in count(2))
