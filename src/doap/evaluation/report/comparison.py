"""Results beside each other: those that were judged alike and no others, the best first."""

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

from doap.errors import DataError
from doap.evaluation.bootstrap import middle
from doap.evaluation.result import Estimate, Figure, Result, read_result

# Whom the others are held against: the first of these that was judged.
REFERENCES = ("rootsift", "sift")


@dataclass(frozen=True)
class Entry:
    """A descriptor of a comparison: its result, the file of it, and a label that no other entry has."""

    path: Path
    result: Result
    label: str

    def bootstrap_interval(self, figure: str, part: str = "") -> Estimate | None:
        """Its figure of this name, in all or of a part, if it has one that is finite."""
        found = self.result.figure(figure)
        estimate = found and (found.parts.get(part) if part else found.total)
        return estimate if estimate and math.isfinite(estimate.value) else None


@dataclass(frozen=True)
class BenchmarkTable:
    """Descriptors judged alike: on one benchmark, with one set of data, protocol and seed.

    Attributes:
        name: of the benchmark, and what sets this comparison apart from others of the same benchmark.
        apart: what sets it apart, by the setting's name; empty where the benchmark has one comparison only.
        entries: best headline figure first.
    """

    name: str
    apart: dict[str, str]
    entries: tuple[Entry, ...]

    @property
    def key(self) -> str:
        """The name as the target of a link or of a reference."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def any_result(self) -> Result:
        """One of the results, for what all have in common."""
        return self.entries[0].result

    @property
    def figures(self) -> list[Figure]:
        """One figure of each name, the headline first: for its name and which way is better."""
        every = (figure for entry in self.entries for figure in entry.result.figures)
        return list({figure.name: figure for figure in every}.values())

    @property
    def reference(self) -> Entry | None:
        """RootSIFT if it was judged, else SIFT."""
        named = {entry.result.descriptor.name.lower(): entry for entry in reversed(self.entries)}
        return next((named[name] for name in REFERENCES if name in named), None)

    def ranked(self, figure: Figure, part: str = "") -> list[tuple[Entry, Estimate]]:
        """Those that have the figure, best first."""
        sign = -1 if figure.better == "higher" else 1
        found = [(entry, entry.bootstrap_interval(figure.name, part)) for entry in self.entries]
        having = [(entry, estimate) for entry, estimate in found if estimate]
        return sorted(having, key=lambda pair: sign * pair[1].value)

    def standing(self, entry: Entry, figure: Figure) -> Literal["best", "level", "behind"]:
        """`level` is not told apart from the best."""
        ranked, estimate = self.ranked(figure), entry.bootstrap_interval(figure.name)
        if estimate is None:
            return "behind"
        best = ranked[0][1]
        return "best" if estimate.value == best.value else "behind" if told_apart(best, estimate) else "level"


def difference(one: Estimate, other: Estimate) -> tuple[float, float] | None:
    """The 95 % interval of one minus the other, resample by resample; None where they were not resampled alike."""
    if not one.resampled or len(one.resampled) != len(other.resampled) or one.units != other.units:
        return None
    return middle(np.subtract(one.resampled, other.resampled))


def told_apart(one: Estimate, other: Estimate) -> bool:
    """Whether the interval of the difference leaves out 0; without one, whether the two intervals are apart."""
    apart = difference(one, other)
    if apart is None:
        return one.low > other.high or other.low > one.high
    return not apart[0] <= 0 <= apart[1]


def read_results(paths: Sequence[str | Path]) -> list[tuple[Path, Result]]:
    """Results of JSON files and of folders of them, at any depth; a file given twice counts once."""
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"{path}: expected a result of `doap eval` or a folder of them, got no such file")
        found = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not found:
            raise DataError(f"{path}: expected results of `doap eval` in it, got no *.json; run `doap eval` first")
        files |= {file.resolve(): file for file in found}
    return [(file, read_result(file)) for file in files.values()]


def compare(results: Iterable[tuple[Path, Result]]) -> list[BenchmarkTable]:
    """Sort results into comparisons, by the name of the benchmark.

    Figures under another protocol, of other data or drawn with another seed answer another question: they never share
    a comparison, and the comparisons of one benchmark are named by what they differ in.
    """
    groups: dict[str, dict[str, list[tuple[Path, Result]]]] = defaultdict(lambda: defaultdict(list))
    for path, result in results:
        alike = [result.dataset.name, result.dataset.sha256, result.seed, result.protocol]
        groups[result.benchmark][json.dumps(alike, sort_keys=True)].append((path, result))
    comparisons = []
    for benchmark, by_settings in sorted(groups.items()):
        settings = [_settings(group[0][1]) for group in by_settings.values()]
        names = sorted({name for each in settings for name in each})
        differing = [name for name in names if len({each.get(name) for each in settings}) > 1]
        if "dataset" in differing and len({each["dataset"] for each in settings}) == len(settings):
            # Sets with names of their own need no more to be told apart: what was counted in them differs of course.
            differing = ["dataset"]
        for group, each in zip(by_settings.values(), settings, strict=True):
            apart = {name: each.get(name, "not set") for name in differing}
            said = ", ".join(value if name == "dataset" else f"{name} {value}" for name, value in apart.items())
            comparisons.append(_comparison(f"{benchmark} ({said})" if said else benchmark, apart, group))
    return sorted(comparisons, key=lambda comparison: comparison.name)


def verdict(comparison: BenchmarkTable) -> str:
    """Who is best, by how much over the reference, and whether chance could have done it; one or two sentences."""
    figure = comparison.figures[0]
    ranked = comparison.ranked(figure)
    if not ranked:
        return f"No descriptor has a finite {figure.name}."
    (best, top), *others = ranked
    said = f"{best.label} {'is best with' if others else 'alone was judged:'} {figure.name} {interval(top)}"
    against = next(((entry, value) for entry, value in others if entry is comparison.reference), None)
    if against is None and others:
        against = others[0]
    if against is None:
        return f"{said}."
    gain = number(abs(top.value - against[1].value))
    said += f", {gain} better than {against[0].label} ({number(against[1].value)}): {_whether(top, against[1])}."
    level = [entry.label for entry, value in others if not told_apart(top, value) and entry is not against[0]]
    if not level:
        return said
    named = level if len(level) < 4 else [*level[:3], f"{len(level) - 3} more"]
    return f"{said} Not told apart from it: {', '.join(named[:-1])}{' and ' if named[1:] else ''}{named[-1]}."


def _whether(top: Estimate, against: Estimate) -> str:
    """In words, what chance may have to do with a difference."""
    apart = difference(top, against)
    if apart is None:
        return f"their intervals {'do not overlap' if told_apart(top, against) else 'overlap'}"
    low, high = sorted(abs(end) for end in apart)
    if told_apart(top, against):
        return f"the difference is {number(low)} to {number(high)} in 95 % of resamples"
    return "the difference may be chance"


def number(value: float) -> str:
    """Three decimals, or four digits of what is large."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def interval(estimate: Estimate) -> str:
    return f"{number(estimate.value)} ({number(estimate.low)} to {number(estimate.high)})"


def _settings(result: Result) -> dict[str, str]:
    """Everything that must be the same for figures to be comparable, as short text."""
    given: dict[str, Any] = {"dataset": result.dataset.name, "checksum": result.dataset.sha256[:12]}
    given |= {"seed": result.seed, **result.protocol}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}


def _comparison(name: str, apart: dict[str, str], group: Sequence[tuple[Path, Result]]) -> BenchmarkTable:
    files: dict[tuple[str, str], Path] = {}
    for path, result in group:
        descriptor = result.descriptor.name, result.descriptor.fingerprint
        if other := files.get(descriptor):
            raise DataError(
                f"{path}: expected one result of {descriptor[0]} on {name}, also got {other}; leave one out"
            )
        files[descriptor] = path
    namesakes = Counter(descriptor_name for descriptor_name, _ in files)
    entries = []
    for path, result in group:
        label = result.descriptor.name
        # Two files of weights may have one name.
        label += f" {result.descriptor.fingerprint[:6]}" if namesakes[label] > 1 else ""
        entries.append(Entry(path, result, label))
    entries.sort(key=lambda entry: entry.label)
    unsorted = BenchmarkTable(name, apart, tuple(entries))
    first = [entry for entry, _ in unsorted.ranked(unsorted.figures[0])]
    return BenchmarkTable(name, apart, (*first, *(entry for entry in entries if entry not in first)))
