"""The benchmarks by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from doap._support.checks import check_choice
from doap._support.errors import ArgumentError
from doap.evaluation.benchmark import Benchmark, BenchmarkType
from doap.evaluation.hpatches import HPatchesBenchmark
from doap.evaluation.oxford import OxfordBenchmark
from doap.evaluation.patches import PatchesBenchmark
from doap.evaluation.phototour import PhotoTourBenchmark
from doap.evaluation.pose import PoseBenchmark
from doap.evaluation.romepatches import RomePatchesBenchmark
from doap.evaluation.sfm import SfmBenchmark
from doap.evaluation.speed import SpeedBenchmark
from doap.evaluation.sweeps import SweepsBenchmark
from doap.evaluation.wxbs import WxbsBenchmark
from doap.types import Progress, no_progress

BENCHMARKS: dict[str, BenchmarkType] = {
    "oxford": OxfordBenchmark,
    "phototour": PhotoTourBenchmark,
    "hpatches": HPatchesBenchmark,
    "romepatches": RomePatchesBenchmark,
    "patches": PatchesBenchmark,
    "sweeps": SweepsBenchmark,
    "pose": PoseBenchmark,
    "speed": SpeedBenchmark,
    "sfm": SfmBenchmark,
    "wxbs": WxbsBenchmark,
}
"""Benchmarks by name; `BENCHMARKS[name](root, **settings)` opens one."""


def open_benchmark(
    name: str,
    root: str | Path,
    settings: Mapping[str, object] | None = None,
    progress: Progress = no_progress,
) -> Benchmark:
    """Open a benchmark by its name in `BENCHMARKS`.

    Args:
        name: Name of the benchmark.
        root: Its data.
        settings: Settings by name, as values or as strings; see the `Settings` of the benchmark.
        progress: Progress callback.
    """
    check_choice(name, tuple(BENCHMARKS), name="benchmark")
    given = dict(settings or {})
    if "progress" in given:
        raise ArgumentError("settings: progress is an argument of open_benchmark, not a setting.")
    return BENCHMARKS[name](root, progress=progress, **given)
