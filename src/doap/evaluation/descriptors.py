"""Descriptors to evaluate: load them by name and give them short, unique names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from doap._support.device import Precision
from doap.baselines import BASELINES, PIPELINES
from doap.describer import Describer, PatchDescriber
from doap.descriptor import SHIPPED, load
from doap.evaluation.controls import CONTROLS
from doap.extractor import DescriptorSource, Extractor
from doap.matching import Matcher
from doap.types import Kind

GROUPS: dict[str, Iterable[str]] = {"baselines": BASELINES, "pipelines": PIPELINES, "controls": CONTROLS}
"""Words that stand for several descriptors."""


@dataclass(frozen=True)
class Candidate:
    """An opened descriptor or pipeline, by what it can do.

    Attributes:
        name: Name in messages.
        kind, dim: As for `Describer`.
        describer: Describes given keypoints.
        patch_describer: Describes patches.
        extractor: Detects its own keypoints; None to describe those of any detector.
        matcher: Has a matcher of its own; None for nearest neighbours.
        compute_natively: Describes the keypoints of an image as OpenCV's users do, for timing.
        file: File that it was loaded from.
    """

    name: str
    kind: Kind
    dim: int
    describer: Describer | None = None
    patch_describer: PatchDescriber | None = None
    extractor: Extractor | None = None
    matcher: Matcher | None = None
    compute_natively: Callable[[NDArray[np.uint8], Sequence[Any]], NDArray[Any]] | None = None
    file: Path | None = None


def open_candidate(descriptor: Describer | Extractor, file: Path | None = None) -> Candidate:
    """Find out what a descriptor or pipeline can do; `file` is the file it was loaded from, if any."""
    name = str(getattr(descriptor, "name", type(descriptor).__name__.lower()))
    if isinstance(descriptor, Extractor):
        own, matcher = descriptor.describer, descriptor.matcher
        return Candidate(name, descriptor.kind, descriptor.dim, own, None, descriptor, matcher, file=file)
    patches = descriptor if isinstance(descriptor, PatchDescriber) else None
    native = getattr(descriptor, "compute_natively", None)
    return Candidate(name, descriptor.kind, descriptor.dim, descriptor, patches, compute_natively=native, file=file)


def open_candidates(
    descriptors: DescriptorSource | Sequence[DescriptorSource] | Mapping[str, DescriptorSource],
    *,
    device: str | torch.device = "auto",
    precision: Precision = "auto",
) -> dict[str, Candidate]:
    """Load descriptors, by short and unique names.

    >>> list(open_candidates(["rootsift", "controls"]))
    ['rootsift', 'constant', 'random', 'shuffled']

    Args:
        descriptors: One descriptor, several, or a mapping from the names to use to descriptors. A descriptor is
            anything that `doap.load` accepts, the name of a control, a describer, or an extractor. In a sequence, the
            word `baselines` stands for all baselines in `BASELINES`, `pipelines` for all learned pipelines in
            `PIPELINES`, and `controls` for all controls in `CONTROLS`.
        device: Device of the networks; see `doap.load`.
        precision: Precision of the networks; see `doap.load`.

    Returns:
        Candidates by name. A file is named by its stem, a function by its own name; later ones of the same name get
        the suffix -2, -3, ….
    """
    if isinstance(descriptors, Mapping):
        return {name: _open(source, device, precision)[1] for name, source in descriptors.items()}
    sources = [descriptors] if isinstance(descriptors, str | Path | Describer | Extractor) else descriptors
    candidates: dict[str, Candidate] = {}
    for source in _expand(sources):
        name, candidate = _open(source, device, precision)
        numbered = chain([name], (f"{name}-{number}" for number in count(2)))
        candidates[next(one for one in numbered if one not in candidates)] = candidate
    return candidates


def _expand(sources: Sequence[DescriptorSource]) -> Iterator[DescriptorSource]:
    """Replace group words by their members and drop repeated names and files."""
    known: set[str] = set()
    for source in sources:
        if not isinstance(source, str | Path):
            yield source
            continue
        for name in GROUPS.get(str(source), [str(source)]):
            if name not in known:
                known.add(name)
                yield name


def _open(source: DescriptorSource, device: str | torch.device, precision: Precision) -> tuple[str, Candidate]:
    """Return the short name of a descriptor and the opened one."""
    if not isinstance(source, str | Path):
        candidate = open_candidate(source)
        return candidate.name, candidate
    file, control = _file_of(source), CONTROLS.get(str(source))
    opened = control() if control else load(source, device=device, precision=precision)
    return file.stem if file else str(source).rpartition(":")[2], open_candidate(opened, file)


def _file_of(source: str | Path) -> Path | None:
    """Return the file that a descriptor is loaded from; None for baselines, pipelines, controls and functions."""
    if any(str(source) in names for names in GROUPS.values()):
        return None
    path = SHIPPED.get(str(source)) or Path(source)
    return path if path.is_file() else None
