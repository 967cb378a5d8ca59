"""Comparison of one descriptor with baselines on photos without ground truth: should you switch?"""

from doap.evaluation.comparison.result import Comparison
from doap.evaluation.comparison.run import compare

__all__ = ["Comparison", "compare"]
