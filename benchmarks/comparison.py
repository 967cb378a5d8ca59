"""Paired comparisons: intervals, sign-flip tests, and Holm's correction for several of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import permutation_test
from scipy.stats import t as student


def paired(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Return the mean of first − second with a 95 % interval of Student's t."""
    differences = [one - other for one, other in zip(first, second, strict=True)]
    mean = statistics.mean(differences)
    half = float(student.ppf(0.975, len(differences) - 1)) * statistics.stdev(differences) / len(differences) ** 0.5
    return {"difference": mean, "low": mean - half, "high": mean + half}


def compare(values: Mapping[str, Mapping[str, float]], base: str) -> dict[str, dict[str, Any]]:
    """Compare values by name and scene with those of one name, in the scenes that both have.

    Returns:
        By name: difference, interval, p of the exact two-sided sign-flip test, the same corrected by Holm over all
        names, and number of scenes. Names with fewer than two common scenes are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, scenes in values.items():
        common = sorted(scenes.keys() & values[base].keys())
        if name == base or len(common) < 2:
            continue
        ours, theirs = ([of[scene] for scene in common] for of in (scenes, values[base]))
        flips = permutation_test(
            (np.subtract(ours, theirs),), np.mean, permutation_type="samples", n_resamples=1 << len(common)
        )
        found[name] = {**paired(ours, theirs), "p": float(flips.pvalue), "scenes": len(common)}
    corrected = 0.0
    for rank, name in enumerate(sorted(found, key=lambda one: found[one]["p"])):
        corrected = max(corrected, min(1.0, (len(found) - rank) * found[name]["p"]))
        found[name]["p, Holm"] = corrected
    return found
