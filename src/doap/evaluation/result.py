"""Results of a benchmark: metrics with confidence intervals, curves and provenance, stored as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from doap._support.errors import ArgumentError, DataError
from doap._support.files import atomic_write, read_json
from doap._support.settings import FORBID_EXTRA, validate
from doap.types import Kind

FORMAT = "doap results 1"

Direction = Literal["higher", "lower"]
"""Which direction of a figure is better."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % bootstrap confidence interval.

    Attributes:
        value: Value on the full sample.
        low, high: Limits of the interval; both None if there are too few independent units for one.
        units: Number of resampled units: queries, image pairs, ….
        resampled: Value in each resample; empty without an interval. All descriptors are resampled with the same
            seed, so the resamples of two descriptors are paired. The interval of their difference can exclude 0 even
            where their own intervals overlap.
    """

    __pydantic_config__ = FORBID_EXTRA

    value: float
    low: float | None
    high: float | None
    units: int
    resampled: list[float] = field(default_factory=list, repr=False)

    @property
    def bounds(self) -> tuple[float, float]:
        """`low` and `high` as numbers for charts and comparisons; NaN without an interval."""
        if self.low is None or self.high is None:
            return math.nan, math.nan
        return self.low, self.high


@dataclass(frozen=True)
class Figure:
    """One metric of a benchmark.

    Attributes:
        name: Name such as `mAP`, unique within a benchmark.
        unit: Independent units that are resampled, in the plural, such as `sequences`.
        total: Value over the whole benchmark.
        parts: Values by sequence, scene or task, without their resamples.
        part_unit: Units that are resampled within a part, in the plural; empty if they are those of the total.
    """

    __pydantic_config__ = FORBID_EXTRA

    name: str
    better: Direction
    unit: str
    total: Estimate
    parts: dict[str, Estimate] = field(default_factory=dict)
    part_unit: str = ""

    def __post_init__(self) -> None:
        small = {name: dataclasses.replace(estimate, resampled=[]) for name, estimate in self.parts.items()}
        object.__setattr__(self, "parts", small)


@dataclass(frozen=True)
class Curve:
    """A curve of a report.

    Attributes:
        name: Title of its chart.
        x, y: Axis labels.
        points: (x, y), from left to right.
        x_base: 2 or 10 for a logarithmic x axis, where every x is above 0; None for a linear one.
    """

    __pydantic_config__ = FORBID_EXTRA

    name: str
    x: str
    y: str
    points: list[tuple[float, float]]
    x_base: Annotated[int, Field(ge=2)] | None = None

    def __post_init__(self) -> None:
        if self.x_base and any(not x > 0 for x, _ in self.points):
            raise ArgumentError(f"{self.name}: expected every x above 0 for a logarithmic axis.")


@dataclass(frozen=True)
class Histogram:
    """Shares (B,) of the distances of matching and of other pairs in bins with B + 1 increasing edges."""

    __pydantic_config__ = FORBID_EXTRA

    edges: list[float]
    matches: list[float]
    others: list[float]

    def __post_init__(self) -> None:
        if not len(self.edges) - 1 == len(self.matches) == len(self.others):
            raise ArgumentError("histogram: expected one edge more than bins, and as many matches as others.")


@dataclass(frozen=True)
class Scores:
    """Everything a benchmark measures for one descriptor; tables are sorted by the first figure.

    `selected` are settings that were selected for it on validation data, for example its ratio threshold.
    """

    figures: tuple[Figure, ...]
    curves: tuple[Curve, ...] = ()
    histogram: Histogram | None = None
    selected: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Dataset:
    """The data of a benchmark: a name and a checksum of the bytes that the figures depend on."""

    __pydantic_config__ = FORBID_EXTRA

    name: str
    sha256: str


@dataclass(frozen=True)
class DescriptorInfo:
    """Identity of an evaluated descriptor.

    Attributes:
        name: Name in tables.
        dim: Number of dimensions or bits.
        bytes: Size of one descriptor.
        fingerprint: Checksum of the descriptor's weights and settings.
        file_sha256: Checksum of the file it was loaded from; None if there is no file.
        pipeline: Whether it is a pipeline, which matches the keypoints of its own detector itself.
    """

    __pydantic_config__ = FORBID_EXTRA

    name: str
    kind: Kind
    dim: Annotated[int, Field(ge=1)]
    bytes: Annotated[int, Field(ge=1)]
    fingerprint: str
    file_sha256: str | None
    pipeline: bool = False


@dataclass(frozen=True)
class Result:
    """Scores of one descriptor on one benchmark, with everything needed to reproduce them.

    Attributes:
        benchmark: Name of the benchmark in `BENCHMARKS`.
        protocol: Every choice that affects the figures.
        figures: Metrics; the first one is the headline.
        histogram: Distances of matching and non-matching pairs, if measured.
        seed: Seed of the bootstrap.
        date: ISO date of the run.
        seconds: Time spent in `describe` and in `score`.
        versions: Versions of the libraries that affect the figures.
        selected: Settings that were selected for this descriptor on validation data.
        commit: Commit of doap's source code; None if it ran outside its repository.
    """

    __pydantic_config__ = FORBID_EXTRA

    benchmark: str
    protocol: dict[str, Any]
    dataset: Dataset
    descriptor: DescriptorInfo
    figures: Annotated[tuple[Figure, ...], Field(min_length=1)]
    curves: tuple[Curve, ...]
    histogram: Histogram | None
    seed: int
    date: str
    seconds: dict[str, float]
    versions: dict[str, str]
    selected: dict[str, float] = field(default_factory=dict)
    commit: str | None = None

    @property
    def headline(self) -> Figure:
        """The figure that tables are sorted by."""
        return self.figures[0]

    def figure(self, name: str) -> Figure | None:
        """Return the figure of a name, or None if the benchmark does not have it."""
        return next((figure for figure in self.figures if figure.name == name), None)


@dataclass(frozen=True)
class _Stored:
    """The content of a JSON file of results, without its format."""

    __pydantic_config__ = FORBID_EXTRA

    results: list[Result]


def write_results(results: Iterable[Result], path: Path) -> Path:
    """Write the results of a benchmark as one JSON file, atomically."""
    rows = [json.dumps(dataclasses.asdict(result), ensure_ascii=False) for result in results]
    with atomic_write(path) as unfinished:
        text = f'{{"format": {json.dumps(FORMAT)}, "results": [\n' + ",\n".join(rows) + "\n]}\n"
        unfinished.write_text(text, encoding="utf-8")
    return path


def read_results(path: str | Path) -> dict[str, Result]:
    """Read the results in a JSON file by the name of their descriptor."""
    path = Path(path)
    stored = read_json(path, "results of `doap eval`")
    if (found := stored.pop("format", None)) != FORMAT:
        raise DataError(f"{path}: not results of `doap eval` (expected format {FORMAT!r}, got {found!r}).")
    results = validate(_Stored, stored, f"{path}: not results of `doap eval`").results
    by_name = {result.descriptor.name: result for result in results}
    if len(by_name) < len(results):
        raise DataError(f"{path}: expected one result per descriptor, got {len(results)} of {len(by_name)}.")
    return by_name
