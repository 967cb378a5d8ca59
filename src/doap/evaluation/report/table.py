"""Tables of results: one for each benchmark, dataset, protocol and seed, best descriptor first."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from doap._support.errors import DataError
from doap.evaluation.bootstrap import central_interval
from doap.evaluation.result import Estimate, Figure, Result, read_results

REFERENCES = ("rootsift", "sift")
"""Descriptors that the best one is compared with: the first of them in the table."""

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
class BenchmarkTable:
    """Descriptors evaluated under the same conditions: one benchmark, dataset, protocol and seed.

    Attributes:
        name: Name of the benchmark, with the settings that distinguish it from its other tables.
        distinct: Settings that distinguish it, by name; empty if it is the only table of the benchmark.
        entries: Rows, best headline figure first.
    """

    name: str
    distinct: dict[str, str]
    entries: tuple[Entry, ...]

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

    @property
    def reference(self) -> Entry | None:
        """RootSIFT if it is in the table, else SIFT."""
        named = {entry.result.descriptor.name.lower(): entry for entry in reversed(self.entries)}
        return next((named[name] for name in REFERENCES if name in named), None)

    def ranked(self, figure: Figure, part: str = "") -> list[tuple[Entry, Estimate]]:
        """Return the entries that have a figure, best first."""
        sign = -1 if figure.better == "higher" else 1
        found = [(entry, entry.estimate(figure.name, part)) for entry in self.entries]
        finite = [(entry, estimate) for entry, estimate in found if estimate]
        return sorted(finite, key=lambda pair: sign * pair[1].value)

    def standing(self, entry: Entry, figure: Figure) -> Literal["best", "tied", "worse", "untested"]:
        """Return `tied` if the difference from the best is not significant, `untested` if there are no intervals."""
        estimate = entry.estimate(figure.name)
        if estimate is None:
            return "worse"
        best = self.ranked(figure)[0][1]
        if estimate.value == best.value:
            return "best"
        if estimate.low is None or best.low is None:
            return "untested"
        return "worse" if differ(best, estimate) else "tied"


def difference_interval(one: Estimate, other: Estimate) -> tuple[float, float] | None:
    """Return the 95 % interval of one minus the other over paired resamples; None if they are not paired."""
    if not one.resampled or len(one.resampled) != len(other.resampled) or one.units != other.units:
        return None
    return central_interval(np.subtract(one.resampled, other.resampled))


def differ(one: Estimate, other: Estimate) -> bool:
    """Return whether the interval of the difference excludes 0; if unpaired, whether the intervals are disjoint.

    Without intervals, no difference is significant.
    """
    interval = difference_interval(one, other)
    if interval is None:
        (low, high), (other_low, other_high) = one.bounds, other.bounds
        return low > other_high or other_low > high
    return not interval[0] <= 0 <= interval[1]


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


def group_results(results: Iterable[ResultFile]) -> list[BenchmarkTable]:
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
            tables.append(_table(f"{benchmark} ({text})" if text else benchmark, distinct, group))
    return sorted(tables, key=lambda table: table.name)


def summarise(table: BenchmarkTable) -> str:
    """Summarise a table in one or two sentences: the best, its lead over the reference, and its significance."""
    figure = table.figures[0]
    ranked = table.ranked(figure)
    if not ranked:
        return f"No descriptor has a finite {figure.name}."
    (best, top), *others = ranked
    if not others:
        return (
            f"{best.label} has {figure.name} {format_interval(top, figure.unit)}; there is no other descriptor to "
            "compare it with."
        )
    reference, value = next((pair for pair in others if pair[0] is table.reference), others[0])
    lead = format_number(abs(top.value - value.value))
    text = (
        f"{best.label} is best with {figure.name} {format_interval(top, figure.unit)}, {lead} better than "
        f"{reference.label} "
        f"({format_number(value.value)}): {_significance(top, value)}."
    )
    tied = [entry.label for entry, _ in others if entry is not reference and table.standing(entry, figure) == "tied"]
    if not tied:
        return text
    named = tied if len(tied) < 4 else [*tied[:3], f"{len(tied) - 3} more"]
    listed = f"{', '.join(named[:-1])}{' and ' if named[1:] else ''}{named[-1]}"
    return f"{text} Not significantly different from the best: {listed}."


def format_number(value: float) -> str:
    """Format a number with three decimals, or with four digits if it is large."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def format_units(count: int, unit: str) -> str:
    """Format a number of units.

    >>> format_units(1, "pairs of images"), format_units(4000, "queries")
    ('1 pair of images', '4,000 queries')
    """
    if count == 1:
        first, *rest = unit.split(" ")
        unit = " ".join([first[:-3] + "y" if first.endswith("ies") else first.removesuffix("s"), *rest])
    return f"{count:,} {unit}"


def format_interval(estimate: Estimate, unit: str) -> str:
    """Format a value with its interval in parentheses, or with the number of units that are too few for one."""
    value, low, high = map(format_number, (estimate.value, *estimate.bounds))
    interval = f"no interval: {format_units(estimate.units, unit)}" if estimate.low is None else f"{low} to {high}"
    return f"{value} ({interval})"


def format_bounds(estimate: Estimate, unit: str) -> str:
    """Format only the interval; empty if it is not finite."""
    if estimate.low is None:
        return f"no interval ({format_units(estimate.units, unit)})"
    low, high = estimate.bounds
    return f"[{format_number(low)}, {format_number(high)}]" if math.isfinite(low) and math.isfinite(high) else ""


def _significance(top: Estimate, other: Estimate) -> str:
    """Describe in words whether a difference is significant."""
    if top.low is None or other.low is None:
        return "without intervals, the difference cannot be tested"
    interval = difference_interval(top, other)
    if interval is None:
        return f"their intervals {'do not overlap' if differ(top, other) else 'overlap'}"
    if not differ(top, other):
        return "the difference is not significant"
    low, high = sorted(abs(end) for end in interval)
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


def _table(name: str, distinct: dict[str, str], group: Sequence[ResultFile]) -> BenchmarkTable:
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
    unsorted = BenchmarkTable(name, distinct, tuple(entries))
    ranked = [entry for entry, _ in unsorted.ranked(unsorted.figures[0])]
    return BenchmarkTable(name, distinct, (*ranked, *(entry for entry in entries if entry not in ranked)))
