"""Benchmarks with several scenes: validation scenes, images of a scene, and means over scenes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import ArgumentError
from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.result import Figure

Errors = NDArray[np.float64]


def split_scenes(scenes: Sequence[str], validation: str, test: str = "") -> tuple[list[str], list[str]]:
    """Return the validation scenes and the test scenes.

    >>> split_scenes(["church", "fountain", "taj_mahal"], "taj_mahal, fountain")
    (['taj_mahal', 'fountain'], ['church'])

    Names are separated by commas; without test scenes, all others are for the test.
    """
    for_validation, for_test = _parse("validation", validation, scenes), _parse("test", test, scenes)
    for_test = for_test or [scene for scene in scenes if scene not in for_validation]
    if not for_test:
        raise ArgumentError(f"validation: expected a scene to be left for the test, got all {len(scenes)}.")
    if both := [scene for scene in for_test if scene in for_validation]:
        raise ArgumentError(f"test: expected other scenes than those of validation, got {', '.join(both)} in both.")
    return for_validation, for_test


def _parse(setting: str, names: str, scenes: Sequence[str]) -> list[str]:
    """Return the names of a comma-separated list."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := sorted(set(chosen) - set(scenes)):
        raise ArgumentError(f"{setting}: unknown scene {', '.join(unknown)}. The scenes are {', '.join(scenes)}.")
    return chosen


def draw_images(paths: Iterable[Path], limit: int) -> list[Path]:
    """Return up to `limit` images of a scene, sorted; always the same ones, also if some of the others are missing."""
    ordered = sorted(set(paths), key=lambda path: hashlib.sha256(path.name.encode()).digest())
    return sorted(ordered[:limit])


def mean_of_scenes(scenes: Sequence[str], errors: Errors, statistic: Callable[[Errors], float]) -> float:
    """Return the mean over scenes of a statistic of the errors (P, …) of their P pairs."""
    labels = np.array(scenes)
    return float(np.mean([statistic(errors[labels == scene]) for scene in dict.fromkeys(scenes)]))


def scene_figure(
    name: str, scenes: Sequence[str] | NDArray[np.str_], errors: Errors, statistic: Callable[[Errors], float], seed: int
) -> Figure:
    """Return the mean over scenes of a statistic of the errors (P, …) of their P pairs, where higher is better.

    The interval resamples scenes and their pairs, so that a pair may occur several times.
    """
    labels = np.array(scenes)
    members = {scene: labels == scene for scene in dict.fromkeys(labels.tolist())}

    def mean_over_scenes(weights: NDArray[np.float64]) -> float:
        total = drawn = 0.0
        for inside in members.values():
            # A scene that was drawn twice counts twice.
            times = float(weights[inside].mean())
            if times:
                total += times * of_scene(errors[inside], weights[inside])
                drawn += times
        return total / drawn

    def of_scene(chosen: Errors, weights: NDArray[np.float64]) -> float:
        return statistic(np.repeat(chosen, weights.astype(np.intp), axis=0))

    parts = {
        scene: bootstrap_interval(partial(of_scene, errors[inside]), int(inside.sum()), seed)
        for scene, inside in members.items()
    }
    total = bootstrap_interval(mean_over_scenes, len(labels), seed, clusters=labels)
    return Figure(name, "higher", "scenes", total, parts, part_unit="pairs of images")
