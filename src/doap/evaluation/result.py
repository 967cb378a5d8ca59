"""What a benchmark leaves: figures with intervals, curves, and everything needed to trust them, as one JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from doap.errors import DataError
from doap.evaluation.cached_describer import CachedDescriber
from doap.files import atomic_write
from doap.types import Kind

FORMAT = "doap result 1"


@dataclass(frozen=True)
class Estimate:
    """A number and how far chance may have moved it.

    Attributes:
        value: of the whole sample.
        low, high: 95 % of bootstrap resamples lie between.
        units: how many queries, pairs of images, … were resampled.
        resampled: the value in each resample. One seed draws the same units for all descriptors, so that the resamples
            of two are pairs, and their differences tell the two apart where their intervals cannot.
    """

    value: float
    low: float
    high: float
    units: int
    resampled: list[float] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class Figure:
    """One figure of a benchmark.

    Attributes:
        name: such as `mAP`; one name has one meaning within a benchmark.
        better: which way is better.
        unit: what was resampled, in the plural, such as `pairs of images`.
        total: over everything.
        parts: the same by sequence, place or task, without their resamples.
    """

    name: str
    better: Literal["higher", "lower"]
    unit: str
    total: Estimate
    parts: dict[str, Estimate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        light = {name: dataclasses.replace(estimate, resampled=[]) for name, estimate in self.parts.items()}
        object.__setattr__(self, "parts", light)


@dataclass(frozen=True)
class Curve:
    """A line to draw.

    Attributes:
        name: what it is.
        x, y: labels of the axes.
        points: (x, y) from left to right.
        x_base: 2 or 10 where x is better seen on a logarithmic axis; its points are then above 0.
    """

    name: str
    x: str
    y: str
    points: list[tuple[float, float]]
    x_base: int | None = None


@dataclass(frozen=True)
class Histogram:
    """Distances of pairs that match and of pairs that do not, as shares of each kind in B bins.

    Attributes:
        edges: B + 1 of them, increasing.
        matches, others: B shares, each summing to 1.
    """

    edges: list[float]
    matches: list[float]
    others: list[float]


@dataclass(frozen=True, eq=False)
class Gallery:
    """The best and the worst that a descriptor did, to be looked at; kept beside the JSON, never in it.

    Attributes:
        best: (n, 2, S, S) uint8, right matches: a query and the match it found.
        worst: (m, 3, S, S) uint8, wrong ones: a query, the match it should have found, the patch it found.
        best_distances: (n,), of the pair; smallest first.
        worst_distances: (m, 2), from the query to the other two; the surest errors first.
    """

    best: NDArray[np.uint8]
    worst: NDArray[np.uint8]
    best_distances: NDArray[np.float32]
    worst_distances: NDArray[np.float32]


@dataclass(frozen=True)
class Scores:
    """What a benchmark says of one descriptor; the first figure is the one that tables are sorted by."""

    figures: tuple[Figure, ...]
    curves: tuple[Curve, ...] = ()
    histogram: Histogram | None = None
    gallery: Gallery | None = None


@dataclass(frozen=True)
class Dataset:
    """What was judged on: a name, and a checksum of the bytes that the figures depend on."""

    name: str
    sha256: str


class Benchmark(Protocol):
    """An opened benchmark: data read, ground truth at hand, ready to judge any number of descriptors alike."""

    @property
    def name(self) -> str: ...  # its name in `BENCHMARKS`

    @property
    def dataset(self) -> Dataset: ...

    @property
    def protocol(self) -> dict[str, Any]: ...  # every choice that moves a figure, by name; values JSON can hold

    def judge(self, describe: CachedDescriber, seed: int) -> Scores: ...


@dataclass(frozen=True)
class DescriptorInfo:
    """Which descriptor it was.

    Attributes:
        name: for tables.
        kind, dim: numbers or bits, and how many.
        bytes: that one descriptor takes.
        fingerprint: checksum of what it makes of fixed patches.
        file_sha256: of the file it was read from, if it was.
    """

    name: str
    kind: Kind
    dim: int
    bytes: int
    fingerprint: str
    file_sha256: str | None


@dataclass(frozen=True)
class Result:
    """One descriptor on one benchmark, and how the figures came about; see `read_result`."""

    benchmark: str
    protocol: dict[str, Any]
    dataset: Dataset
    descriptor: DescriptorInfo
    figures: tuple[Figure, ...]
    curves: tuple[Curve, ...]
    histogram: Histogram | None
    seed: int
    date: str
    seconds: dict[str, float]
    versions: dict[str, str]

    @property
    def headline(self) -> Figure:
        """The figure that tables are sorted by."""
        return self.figures[0]

    def figure(self, name: str) -> Figure | None:
        """The figure of this name, if the benchmark has it."""
        return next((figure for figure in self.figures if figure.name == name), None)


def write_result(result: Result, path: Path, gallery: Gallery | None = None) -> Path:
    """Write a result as JSON, and its gallery, if any, beside it as NPZ; each whole or not at all.

    A gallery holds pieces of the photos that were judged on, whose rights need not be those of the figures.
    """
    with atomic_write(path) as unfinished:
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(result)}, indent=1, ensure_ascii=False)
        unfinished.write_text(text + "\n", encoding="utf-8")
    if gallery is not None:
        with atomic_write(gallery_path(path)) as unfinished, unfinished.open("wb") as stream:
            np.savez_compressed(
                stream, **{part.name: getattr(gallery, part.name) for part in dataclasses.fields(gallery)}
            )
    return path


def read_result(path: str | Path) -> Result:
    """A result from its JSON."""
    path = Path(path)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored.pop("format") != FORMAT:
            raise ValueError("another format")
        histogram = stored.pop("histogram")
        return Result(
            dataset=Dataset(**stored.pop("dataset")),
            descriptor=DescriptorInfo(**stored.pop("descriptor")),
            figures=tuple(_figure(figure) for figure in stored.pop("figures")),
            curves=tuple(_curve(curve) for curve in stored.pop("curves")),
            histogram=histogram and Histogram(**histogram),
            **stored,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: expected a result of `doap eval`, got another file ({error!r})") from error


def read_gallery(path: Path) -> Gallery | None:
    """The gallery beside a result, if it is there."""
    file = gallery_path(path)
    if not file.exists():
        return None
    try:
        with file.open("rb") as stream, np.load(stream) as stored:
            return Gallery(**{part.name: stored[part.name] for part in dataclasses.fields(Gallery)})
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(f"{file}: expected the gallery of a result, got another file ({error}); delete it") from error


def gallery_path(path: Path) -> Path:
    """Where the gallery of a result is."""
    return path.with_suffix(".npz")


def _figure(stored: dict[str, Any]) -> Figure:
    parts = {name: Estimate(**estimate) for name, estimate in stored.pop("parts").items()}
    return Figure(total=Estimate(**stored.pop("total")), parts=parts, **stored)


def _curve(stored: dict[str, Any]) -> Curve:
    return Curve(points=[(x, y) for x, y in stored.pop("points")], **stored)
