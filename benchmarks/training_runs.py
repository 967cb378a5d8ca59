"""Training runs that leave scenes out, and their scores on these scenes.

Eleven scenes with camera poses are scored: nine of the split `train`, taj_mahal and fountain. They form four folds. A
run trains on the tracks of all other scenes of `recipes/tracks` and is scored on the scenes of its fold:

    mAP, FPR95       retrieval and verification of 2,000 groups of the scene's tracks
    pose             AUC@10 of up to 40 pairs with up to 8,192 of COLMAP's keypoints. The ratio threshold is the best
                     one on 8 pairs of each of the other scored scenes.
    homography       AUC@3 of four synthetic planar sequences of the scene's photos

A run of the fold `TUNE` leaves out the scenes `TUNING`, which are never scored, and has their mAP and FPR95.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

import doap
from doap._support.random_streams import stream
from doap.data import build_from_tracks, open_set
from doap.detectors import colmap_default
from doap.evaluation.candidates import open_candidate
from doap.evaluation.homography import area_under_recall
from doap.evaluation.oxford import OxfordBenchmark
from doap.evaluation.pair_matcher import PairMatcher, SharedKeypoints
from doap.evaluation.pose import draw_pairs, pose_errors
from doap.evaluation.posed_scenes import PosedPair, pairs_of, read_posed_scenes
from doap.evaluation.scenes import mean_of_scenes
from doap.evaluation.validation import PatchSample, validate
from doap.images import read_grey

ROOT = Path(__file__).parents[1]
TRACKS = ROOT / "recipes" / "tracks"
sys.path.insert(0, str(ROOT / "scripts"))
from validation_sequences import write_sequence  # noqa: E402

SCORED = {
    "brandenburg_gate": "brandenburg_gate",
    "british_museum": "british_museum",
    "buckingham_palace": "buckingham_palace",
    "dioscuri": "imc2023_heritage-dioscuri",
    "fountain": "fountain",
    "piazza_san_marco": "piazza_san_marco",
    "pond": "pond",
    "st_pauls_cathedral": "st_pauls_cathedral",
    "st_peters_square": "st_peters_square",
    "taj_mahal": "taj_mahal",
    "trevi_fountain": "trevi_fountain",
}
"""Track file of each scored scene."""
TUNING = ("kyiv_puppet_theater", "lizard", "peach")
FOLDS = 4
TUNE = -1
"""Number of the fold in which the tuning scenes are left out."""
KEYPOINTS, PAIRS, PAIRS_FOR_RATIO, RATIOS = 8192, 40, 8, (0.8, 0.85, 0.9)
FIGURES = ("mAP", "FPR95", "pose", "homography")
Recipe = dict[str, dict[str, Any]]


class Cut(NamedTuple):
    """How patches are cut: their side in pixels, and the extent."""

    patch_size: int = 32
    extent: float = 1.0


@dataclass(frozen=True)
class Run:
    """One training run: what it is, its complete recipe, the fold that it leaves out, its seed and its patches."""

    experiment: str
    name: str
    recipe: Recipe
    fold: int
    seed: int = 0
    cut: Cut = field(default_factory=Cut)

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What identifies the run in a file of results."""
        return self.experiment, self.name, self.fold, self.seed


def key(row: dict[str, Any]) -> tuple[str, str, int, int]:
    """Return what identifies a finished run."""
    return row["experiment"], row["name"], row["fold"], row["seed"]


def merge(*recipes: Recipe) -> Recipe:
    """Return the sections of all recipes; later ones override earlier ones key by key."""
    return {
        section: {key: value for recipe in recipes for key, value in recipe.get(section, {}).items()}
        for section in dict.fromkeys(name for recipe in recipes for name in recipe)
    }


def finish(runs: Iterable[Run], photos: Path, scenes: Path, work: Path, end: float) -> Iterator[dict[str, Any]]:
    """Train and score runs, two at a time, and yield the row of each that is finished; start none after `end`."""
    runs = list(runs)
    prepare(photos, work, {run.cut for run in runs})
    with ProcessPoolExecutor(2, initializer=begin, initargs=(scenes, work)) as pool:
        for future in as_completed([pool.submit(execute, run, end) for run in runs]):
            if row := future.result():
                yield row


def held_out(fold: int) -> list[str]:
    """Return the track files of the scenes that a fold leaves out."""
    return list(TUNING) if fold == TUNE else list(SCORED.values())[fold::FOLDS]


def prepare(photos: Path, work: Path, cuts: Iterable[Cut]) -> None:
    """Cut the patch sets of all folds and scenes, and write the planar sequences."""
    every = sorted(TRACKS.glob("*.parquet"))
    for cut in cuts:
        sets = {fold: [path for path in every if path.stem not in held_out(fold)] for fold in range(TUNE, FOLDS)}
        named = {f"fold{fold}": files for fold, files in sets.items()}
        named |= {path.stem: [path] for path in every if path.stem in (*SCORED.values(), *TUNING)}
        for name, files in named.items():
            if not (out := set_path(work, name, cut)).exists():
                build_from_tracks(files, photos, out, patch_size=cut.patch_size, extent=cut.extent)
    for index, scene in enumerate(SCORED):
        generator = stream(0, "sequences", index)
        names = sorted(path.name for path in (photos / scene).iterdir())
        for number, kind in enumerate(("viewpoint", "zoom", "viewpoint", "zoom")):
            if not (folder := work / "sequences" / scene / f"{kind}{number}").exists():
                write_sequence(read_grey(photos / scene / names[number * len(names) // 4]), kind, folder, generator)


def set_path(work: Path, name: str, cut: Cut) -> Path:
    """Return the patch set of a fold or of a track file."""
    return work / "sets" / f"{name} {cut.patch_size} px {cut.extent:g}"


class Scorer:
    """Score weights on scenes. Photos and keypoints are read once per process."""

    def __init__(self, scenes: Path, work: Path) -> None:
        self.work = work
        self.shared = SharedKeypoints(colmap_default(), KEYPOINTS)
        self.scenes = {scene.name: scene for scene in read_posed_scenes(scenes) if scene.name in SCORED}
        self._samples: dict[Path, PatchSample] = {}
        self._planar: dict[str, OxfordBenchmark] = {}

    @cached_property
    def pairs(self) -> dict[str, list[PosedPair]]:
        """Pairs of each scored scene."""
        return {name: draw_pairs(list(pairs_of(scene)), 20, PAIRS) for name, scene in self.scenes.items()}

    def patches(self, descriptor: doap.Descriptor, file: str, cut: Cut) -> dict[str, float]:
        """Return the mAP and the FPR95 on the tracks of a scene."""
        path = set_path(self.work, file, cut)
        if path not in self._samples:
            self._samples[path] = PatchSample.draw(open_set(path))
        scores = validate(descriptor, self._samples[path])
        return {"mAP": 100 * scores.map, "FPR95": 100 * scores.fpr95}

    def planar(self, descriptor: doap.Descriptor, scene: str) -> float:
        """Return the homography AUC@3 on the planar sequences of a scene."""
        if scene not in self._planar:
            self._planar[scene] = OxfordBenchmark(self.work / "sequences" / scene, detector=colmap_default())
        figures = self._planar[scene].evaluate(open_candidate(descriptor), 0).figures
        return next(100 * one.total.value for one in figures if one.name == "homography AUC@3")

    def score(self, descriptor: doap.Descriptor, fold: int, cut: Cut) -> dict[str, Any]:
        """Return the figures of all scenes that a fold leaves out, and the ratio threshold of pose."""
        if fold == TUNE:
            return {"scenes": {scene: self.patches(descriptor, scene, cut) for scene in TUNING}}
        matcher, area = PairMatcher(open_candidate(descriptor), self.shared), partial(area_under_recall, threshold=10)
        scored = list(SCORED)[fold::FOLDS]
        others = [
            pair for scene in SCORED if scene not in scored for pair in self.pairs[scene][:: PAIRS // PAIRS_FOR_RATIO]
        ]
        names = [pair.scene for pair in others]
        ratio = max(RATIOS, key=lambda one: mean_of_scenes(names, pose_errors(matcher, others, one), area))
        return {
            "ratio": ratio,
            "scenes": {
                scene: {
                    **self.patches(descriptor, SCORED[scene], cut),
                    "pose": 100 * area(pose_errors(matcher, self.pairs[scene], ratio)),
                    "homography": self.planar(descriptor, scene),
                }
                for scene in scored
            },
        }


scorer: Scorer
"""Scorer of a worker process."""


def begin(scenes: Path, work: Path) -> None:
    """Prepare a worker process."""
    global scorer
    torch.set_num_threads(1)
    scorer = Scorer(scenes, work)


def execute(run: Run, end: float) -> dict[str, Any] | None:
    """Train and score one run, unless it is too late."""
    if time.monotonic() > end:
        return None
    folder = scorer.work / "runs" / "-".join(map(str, run.key)).translate(str.maketrans(" ,", "__", ";"))
    folder.mkdir(parents=True, exist_ok=True)
    train(run, folder)
    descriptor = doap.Descriptor.load(folder / "last.safetensors", precision="float32")
    return {**asdict(run), **scorer.score(descriptor, run.fold, run.cut)}


def train(run: Run, out: Path) -> None:
    """Run `doap train` on one core."""
    sections = [
        f"[{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in fields.items())
        for name, fields in run.recipe.items()
    ]
    (out / "recipe.toml").write_text("\n".join(sections))
    train_set, validation_set = (set_path(scorer.work, name, run.cut) for name in (f"fold{run.fold}", TUNING[0]))
    command: list[str | Path] = [sys.executable, "-m", "doap", "train", out / "recipe.toml", "--data", train_set]
    command += ["--validation", validation_set, "--out", out, "--seed", str(run.seed), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
