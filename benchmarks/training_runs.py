"""Training runs of an experiment: `doap train` on one core, and scores of the weights on validation scenes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from scipy.stats import t as student

import doap
from doap.describer import Describer
from doap.detectors import colmap
from doap.evaluation.candidates import open_candidate
from doap.evaluation.homography import area_under_recall
from doap.evaluation.oxford import OxfordBenchmark
from doap.evaluation.pair_matcher import PairMatcher, SharedKeypoints
from doap.evaluation.pose import PoseBenchmark, pose_errors
from doap.evaluation.scenes import mean_of_scenes
from doap.extractor import DescriptorSource, Extractor

Recipe = dict[str, dict[str, Any]]

MAX_KEYPOINTS = 1024
VALIDATION_SCENES = "taj_mahal,fountain"
RATIOS = (0.8, 0.85, 0.9)
HOMOGRAPHY = ("homography AUC@1", "homography AUC@3")
# The mAP of a run is that of validation patches.
PLANAR = {**dict(zip(HOMOGRAPHY, HOMOGRAPHY, strict=True)), "mAP": "planar mAP"}


def train(
    sections: Recipe, seed: int, training_set: Path, validation_set: Path, out: Path, *more: str
) -> dict[str, Any]:
    """Run `doap train` on one core, unless the run is finished, and return its results.

    Args:
        sections: Recipe.
        seed: Seed of the run.
        training_set, validation_set: Patch sets.
        out: Folder of the run; a run that was interrupted continues.
        more: Further arguments of the command.

    Returns:
        Steps, speed, and the final validation mAP and FPR95 with RootSIFT's.
    """
    out.mkdir(parents=True, exist_ok=True)
    recipe, log = out / "recipe.toml", out / "log.jsonl"
    # Validate only at the end: validation would take time from the training budget.
    sections = {**sections, "run": {"validate_every": 1_000_000, "checkpoint_every": 50, **sections.get("run", {})}}
    recipe.write_text(
        "\n".join(
            # TOML has no null. A missing value is the default, which is None.
            f"[{name}]\n"
            + "\n".join(f"{key} = {json.dumps(value)}" for key, value in fields.items() if value is not None)
            for name, fields in sections.items()
        )
    )
    command = ["doap", "train", str(recipe), "--data", str(training_set)]
    command += ["--validation", str(validation_set)]
    command += ["--out", str(out), "--seed", str(seed), "--json", *more]
    if not log.exists() or not any(event["kind"] == "end" for event in events(log)):
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    logged = events(log)
    last = next(event for event in reversed(logged) if event["kind"] == "validation")
    speeds = [event["patches_per_second"] for event in logged if event["kind"] == "train"]
    return {
        "steps": last["step"],
        "map": last["map"],
        "fpr95": last["fpr95"],
        "patches_per_second": statistics.median(speeds),
        "rootsift": logged[0]["baselines"]["rootsift"],
    }


def events(log: Path) -> list[dict[str, Any]]:
    """Return the events that a run has logged."""
    return [json.loads(line) for line in log.read_text().splitlines()]


class Scorer:
    """Score weights on validation scenes; a score is computed once and stored in the folder of the run.

    Args:
        scenes: Scenes with camera poses, from `doap data from-poses`.
        sequences: Planar sequences, from `scripts/validation_sequences.py`.
        pose: Settings of the benchmark `pose` other than its defaults.
    """

    def __init__(self, scenes: Path, sequences: Path, **pose: int) -> None:
        self._scenes, self._sequences, self._pose_settings = scenes, sequences, pose
        self._shared = SharedKeypoints(colmap(), MAX_KEYPOINTS)

    @cached_property
    def _pose(self) -> PoseBenchmark:
        return PoseBenchmark(self._scenes, test=VALIDATION_SCENES, **self._pose_settings)

    @cached_property
    def _planar(self) -> OxfordBenchmark:
        return OxfordBenchmark(self._sequences, detector=colmap(), max_keypoints=MAX_KEYPOINTS)

    def score(self, run: Path, source: DescriptorSource | None = None) -> dict[str, float]:
        """Return the pose AUC@10, homography AUC@1 and AUC@3, and planar mAP of the last weights of a run.

        Args:
            run: Folder in which the figures are stored.
            source: Another descriptor to score, as in `score_descriptor`.
        """
        stored = run / "scores.json"
        if not stored.exists():
            run.mkdir(parents=True, exist_ok=True)
            stored.write_text(json.dumps(self.score_descriptor(source or run / "last.safetensors")))
        found: dict[str, float] = json.loads(stored.read_text())
        return found

    def score_descriptor(self, source: DescriptorSource) -> dict[str, float]:
        """Return the same figures of a describer, or of anything that `doap.load` loads."""
        descriptor = doap.load(source) if isinstance(source, str | Path) else source
        return {"pose AUC@10": self._pose_area(descriptor), **self._planar_figures(descriptor)}

    def _pose_area(self, descriptor: Describer | Extractor) -> float:
        """Return the AUC@10 at the ratio threshold that suits the descriptor best."""
        matcher = PairMatcher(open_candidate(descriptor), self._shared)
        labels = [pair.scene for pair in self._pose.test]

        def area(ratio: float) -> float:
            errors = pose_errors(matcher, self._pose.test, ratio)
            return mean_of_scenes(labels, errors, lambda some: area_under_recall(some, 10))

        return max(area(ratio) for ratio in RATIOS)

    def _planar_figures(self, descriptor: Describer | Extractor) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            result = doap.evaluate({"run": descriptor}, self._planar, None, folder).results["run"]
        return {PLANAR[figure.name]: figure.total.value for figure in result.figures if figure.name in PLANAR}


def paired(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Return the mean of first − second, paired by seed, with a 95 % interval of Student's t."""
    differences = [one - other for one, other in zip(first, second, strict=True)]
    mean = statistics.mean(differences)
    half = float(student.ppf(0.975, len(differences) - 1)) * statistics.stdev(differences) / len(differences) ** 0.5
    return {"difference": mean, "low": mean - half, "high": mean + half}
