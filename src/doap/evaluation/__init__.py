"""Judge: a descriptor → a benchmark → a result → a report."""

from collections.abc import Callable

from doap.evaluation.controls import CONTROLS
from doap.evaluation.hpatches import open_hpatches
from doap.evaluation.oxford import open_oxford
from doap.evaluation.patches import open_patches
from doap.evaluation.phototour import open_phototour
from doap.evaluation.result import Benchmark, Result, read_result
from doap.evaluation.romepatches import open_romepatches
from doap.evaluation.run import Evaluated, evaluate
from doap.evaluation.sweeps import open_sweeps

BENCHMARKS: dict[str, Callable[..., Benchmark]] = {
    "oxford": open_oxford,
    "phototour": open_phototour,
    "hpatches": open_hpatches,
    "romepatches": open_romepatches,
    "patches": open_patches,
    "sweeps": open_sweeps,
}

__all__ = ["BENCHMARKS", "CONTROLS", "Benchmark", "Evaluated", "Result", "evaluate", "read_result"]
