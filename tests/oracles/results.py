"""Results as `doap eval` writes them, with chosen values."""

import dataclasses
from typing import Any

from doap.evaluation.result import Curve, Dataset, DescriptorInfo, Estimate, Figure, Histogram, Result


def estimate(value: float, half: float = 0.02, units: int = 40) -> Estimate:
    return Estimate(value, value - half, value + half, units)


def make_result(name: str = "sift", value: float = 0.5, half: float = 0.02, **changes: Any) -> Result:
    """Return a result with a given mAP and half-width of its interval; `changes` replace fields."""
    parts = {"graf": estimate(value - 0.1, 2 * half, 5), "wall": estimate(value + 0.1, 2 * half, 5)}
    made = Result(
        benchmark="oxford",
        protocol={"overlap error": 0.4, "ties": "expected"},
        dataset=Dataset("oxford_affine", "ab" * 32),
        descriptor=DescriptorInfo(name, "real", 128, 512, f"{name:f<64}", None),
        figures=(
            Figure("mAP", "higher", "pairs of images", estimate(value, half), parts),
            Figure("FPR95", "lower", "pairs", estimate(1 - value, half / 2), {}),
        ),
        curves=(Curve("precision-recall", "recall", "precision", [(0.0, 1.0), (0.5, 0.9), (value, 0.2)]),),
        histogram=Histogram([0.0, 1.0, 2.0], [0.75, 0.25], [0.125, 0.875]),
        seed=0,
        date="2025-05-04",
        seconds={"describe": 1.5, "score": 0.25},
        versions={"torch": "2.13.0"},
    )
    return dataclasses.replace(made, **changes)
