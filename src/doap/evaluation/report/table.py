"""Tables of results: one for each benchmark, dataset, protocol and seed, best descriptor first."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from doap._support.errors import DataError
from doap.evaluation.bootstrap import central_interval
from doap.evaluation.result import Direction, Estimate, Figure, Result, read_results

REFERENCES = ("rootsift", "sift")
"""Descriptors that all others are compared with: the first of them in the table."""

ResultFile = tuple[Path, Result]


@dataclass(frozen=True)
class Entry:
    """A row of a table: a result, its file and a unique label."""

    path: Path
    result: Result
    label: str

    @property
    def style(self) -> str:
        """CSS class of its marks: `real`, `binary` or `pipeline`."""
        descriptor = self.result.descriptor
        return "pipeline" if descriptor.pipeline else descriptor.kind

    def estimate(self, figure: str, part: str = "") -> Estimate | None:
        """Return the estimate of a figure, or of one part of it; None if it is missing or not finite."""
        found = self.result.figure(figure)
        estimate = found and (found.parts.get(part) if part else found.total)
        return estimate if estimate and math.isfinite(estimate.value) else None


@dataclass(frozen=True)
class Difference:
    """A paired difference of two estimates.

    Attributes:
        value: One estimate minus the other.
        interval: 95 % interval over paired resamples; None if they are not paired.
        outcome: Whether the interval lies on the better or on the worse side of 0; `untested` without an interval.
    """

    value: float
    interval: tuple[float, float] | None
    outcome: Literal["better", "worse", "similar", "untested"]


@dataclass(frozen=True)
class BenchmarkTable:
    """Descriptors evaluated under the same conditions: one benchmark, dataset, protocol and seed.

    Attributes:
        name: Name of the benchmark, with the settings that distinguish it from its other tables.
        entries: Rows, best headline figure first.
        reference: Row that all others are compared with.
        candidate: Whether differences are those of the reference from the others, not the other way round.
    """

    name: str
    entries: tuple[Entry, ...]
    reference: Entry | None
    candidate: bool = False

    @property
    def key(self) -> str:
        """The name as a link target."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def any_result(self) -> Result:
        """One of the results, for what all have in common."""
        return self.entries[0].result

    @property
    def figures(self) -> list[Figure]:
        """One figure of each name, the headline first."""
        every = (figure for entry in self.entries for figure in entry.result.figures)
        return list({figure.name: figure for figure in every}.values())

    def ranked(self, figure: Figure, part: str = "") -> list[tuple[Entry, Estimate]]:
        """Return the entries that have a figure, best first."""
        sign = -1 if figure.better == "higher" else 1
        found = [(entry, entry.estimate(figure.name, part)) for entry in self.entries]
        finite = [(entry, estimate) for entry, estimate in found if estimate]
        return sorted(finite, key=lambda pair: sign * pair[1].value)

    def leads(self, entry: Entry, figure: Figure) -> bool:
        """Return whether no entry is significantly better; without intervals, whether none is better."""
        estimate = entry.estimate(figure.name)
        if estimate is None:
            return False
        best = self.ranked(figure)[0][1]
        return estimate.value == best.value or compare(estimate, best, figure.better).outcome == "similar"


def difference_interval(one: Estimate, other: Estimate) -> tuple[float, float] | None:
    """Return the 95 % interval of one minus the other over paired resamples; None if they are not paired."""
    if not one.resampled or len(one.resampled) != len(other.resampled) or one.units != other.units:
        return None
    return central_interval(np.subtract(one.resampled, other.resampled))


def compare(one: Estimate, other: Estimate, better: Direction) -> Difference:
    """Return the difference of two estimates of a figure, one minus the other."""
    value, interval = one.value - other.value, difference_interval(one, other)
    if interval is None:
        return Difference(value, None, "untested")
    low, high = interval
    if low <= 0 <= high:
        return Difference(value, interval, "similar")
    return Difference(value, interval, "better" if (low > 0) == (better == "higher") else "worse")


def read_files(paths: Sequence[str | Path]) -> list[ResultFile]:
    """Read results from JSON files and from folders of them, at any depth; a file given twice counts once."""
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"{path}: no such file. Expected results of `doap eval` or a folder of results.")
        found = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not found:
            raise DataError(f"{path}: no *.json file in this folder. Run `doap eval` first.")
        files |= {file.resolve(): file for file in found}
    return [(file, result) for file in files.values() for result in read_results(file).values()]


def group_results(results: Iterable[ResultFile], references: Sequence[str] = REFERENCES) -> list[BenchmarkTable]:
    """Sort results into tables, by name.

    Figures with different data, protocols or seeds are not comparable and never share a table. The tables of one
    benchmark are named by the settings in which they differ.
    """
    groups: dict[str, dict[str, list[ResultFile]]] = defaultdict(lambda: defaultdict(list))
    for path, result in results:
        conditions = [result.dataset.name, result.dataset.sha256, result.seed, result.protocol]
        groups[result.benchmark][json.dumps(conditions, sort_keys=True)].append((path, result))
    tables = []
    for benchmark, by_conditions in groups.items():
        settings = [_settings(group[0][1]) for group in by_conditions.values()]
        differing = _differing(settings)
        for group, each in zip(by_conditions.values(), settings, strict=True):
            distinct = {name: each.get(name, "not set") for name in differing}
            text = ", ".join(value if name == "dataset" else f"{name} {value}" for name, value in distinct.items())
            tables.append(_table(f"{benchmark} ({text})" if text else benchmark, group, references))
    return sorted(tables, key=lambda table: table.name)


def summarise(table: BenchmarkTable) -> str:
    """Summarise a table in one sentence: the best, its lead over the reference, and its significance."""
    figure = table.figures[0]
    ranked = table.ranked(figure)
    if not ranked:
        return f"No descriptor has a finite {figure.name}."
    (best, top), *others = ranked
    value, low, high = map(format_number, (top.value, *top.bounds))
    shown = f"{figure.name} {value} ({'no interval' if top.low is None else f'{low} to {high}'})"
    if not others:
        return f"{best.label} has {shown}; there is no other descriptor to compare it with."
    reference, second = next((pair for pair in others if pair[0] is table.reference), others[0])
    return (
        f"{best.label} is best with {shown}, {format_number(abs(top.value - second.value))} better than "
        f"{reference.label} ({format_number(second.value)}): {_significance(compare(top, second, figure.better))}."
    )


def format_number(value: float) -> str:
    """Format a number with three decimals, or with four digits if it is large."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def _significance(difference: Difference) -> str:
    """Describe in words whether a difference is significant."""
    if difference.interval is None:
        return "without paired intervals, the difference cannot be tested"
    if difference.outcome == "similar":
        return "the difference is not significant"
    low, high = sorted(abs(end) for end in difference.interval)
    return f"95 % interval of the difference {format_number(low)} to {format_number(high)}"


def _settings(result: Result) -> dict[str, str]:
    """Return everything that comparable figures have in common, as short text."""
    given: dict[str, Any] = {"dataset": result.dataset.name, "checksum": result.dataset.sha256[:12]}
    given |= {"seed": result.seed, **result.protocol}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}


def _differing(settings: Sequence[dict[str, str]]) -> list[str]:
    """Return the names of the settings that distinguish the tables of a benchmark."""
    names = sorted({name for each in settings for name in each})
    differing = [name for name in names if len({each.get(name) for each in settings}) > 1]
    # Unique dataset names are sufficient; other settings such as counts differ as a consequence.
    if "dataset" in differing and len({each["dataset"] for each in settings}) == len(settings):
        return ["dataset"]
    return differing


def _table(name: str, group: Sequence[ResultFile], references: Sequence[str]) -> BenchmarkTable:
    files: dict[tuple[str, str], Path] = {}
    for path, result in group:
        descriptor = result.descriptor.name, result.descriptor.fingerprint
        if other := files.get(descriptor):
            raise DataError(f"{path}: {other} is also a result of {descriptor[0]} on {name}. Leave one of them out.")
        files[descriptor] = path
    namesakes = Counter(descriptor_name for descriptor_name, _ in files)
    entries = []
    for path, result in group:
        label = result.descriptor.name
        # Two weight files may have the same name.
        label += f" {result.descriptor.fingerprint[:6]}" if namesakes[label] > 1 else ""
        entries.append(Entry(path, result, label))
    entries.sort(key=lambda entry: entry.label)
    named = {entry.result.descriptor.name.lower(): entry for entry in reversed(entries)}
    reference = next((named[one.lower()] for one in references if one.lower() in named), None)
    unsorted = BenchmarkTable(name, tuple(entries), reference)
    ranked = [entry for entry, _ in unsorted.ranked(unsorted.figures[0])]
    return replace(unsorted, entries=(*ranked, *(entry for entry in entries if entry not in ranked)))
