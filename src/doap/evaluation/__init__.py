"""Evaluation: benchmarks with confidence intervals, reports, and comparisons on your own photos."""

from doap.evaluation.benchmark import Benchmark, BenchmarkSettings
from doap.evaluation.candidates import CONTROLS, open_candidates
from doap.evaluation.comparison import Comparison, compare
from doap.evaluation.report import write_report
from doap.evaluation.result import Result, read_results
from doap.evaluation.run import BENCHMARKS, Evaluation, evaluate, open_benchmark

__all__ = [
    "BENCHMARKS",
    "CONTROLS",
    "Benchmark",
    "BenchmarkSettings",
    "Comparison",
    "Evaluation",
    "Result",
    "compare",
    "evaluate",
    "open_benchmark",
    "open_candidates",
    "read_results",
    "write_report",
]
