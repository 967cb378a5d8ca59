"""Train the score of keypoints that `select="learned"` uses, and measure what it gains, leaving scenes out.

    python benchmarks/selection.py TRAIN TEST --descriptor doap-fast --weights fast.safetensors --out selection.json

TRAIN and TEST are folders of scenes with camera poses (`doap data from-poses`). In each scene of TRAIN, the descriptor
matches pairs of photos with up to 8,192 keypoints at its own ratio. A keypoint is a positive example in every pair in
which its match lies within 2 px of the true epipolar lines, and a negative one in all other pairs, where a wrong match
counts four times as much as none. A pair with R right matches has the weight 1/√R, so that a few easy pairs with
thousands of matches do not decide.

The scenes of TRAIN are divided into folds. The pose AUC@10 of each fold is measured with the score that was trained on
the other folds, for the keypoints with the highest scores, the largest ones, and random ones. Intervals are those of
Student's t for the difference between scenes. The score that is trained on all of TRAIN is measured on TEST and, with
--weights, written to a copy of the descriptor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import record
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus
from training_runs import paired

import doap
from doap._support.random_streams import stream
from doap.detectors import DETECTORS
from doap.evaluation.candidates import open_candidate
from doap.evaluation.homography import area_under_recall
from doap.evaluation.pair_matcher import PairMatcher, SharedKeypoints
from doap.evaluation.pose import draw_pairs, pose_errors
from doap.evaluation.posed_scenes import PosedPair, pairs_of, read_posed_scenes
from doap.geometry.pose import epipolar_errors
from doap.images import centres, scales
from doap.networks.selection import SelectionHead, selection_inputs
from doap.types import Features

MAX_KEYPOINTS = 8192
LIMITS = (512, 1024, 2048, 4096)
"""Numbers of keypoints to measure."""
FOLDS = 4
PAIRS_TO_LEARN = 90
"""Maximum number of pairs of a scene to learn from."""
RIGHT = 2.0
"""Maximum epipolar error of a right match in pixels."""
MIN_RIGHT = 10
"""Right matches that a pair must have to be an example."""
WRONG = 4.0
"""Weight of a wrong match; that of a keypoint without a match is 1."""
STEPS, BATCH, RATE = 2000, 4096, 4e-3
Scene = dict[Path, tuple[Tensor, Tensor]]
"""Inputs (N, D + 6) of all keypoints of a photo, and their weights (N, 2) as right and as other ones."""
Figures = dict[str, dict[str, float]]
"""AUC@10 by choice of keypoints and their number."""


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("train", type=Path, help="scenes to train on, and to measure in folds")
    parser.add_argument("test", type=Path, help="other scenes")
    parser.add_argument("--descriptor", default="doap-fast", help="name or file")
    parser.add_argument("--detector", default="colmap-default", choices=DETECTORS, help="detector of the keypoints")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of each scene to measure")
    parser.add_argument("--weights", type=Path, help="copy of the descriptor with the score to write")
    options = parser.parse_args()
    descriptor = doap.Descriptor.load(options.descriptor)
    matcher = PairMatcher(open_candidate(descriptor), SharedKeypoints(DETECTORS[options.detector](), MAX_KEYPOINTS))
    train, test = read_pairs(options.train), read_pairs(options.test)
    scenes = {name: label(matcher, pairs, descriptor.ratio) for name, pairs in train.items()}
    folds: dict[str, Figures] = {}
    for number in range(FOLDS):
        fold = list(train)[number::FOLDS]
        head = fit([scene for name, scene in scenes.items() if name not in fold], descriptor.dim, options.seed)
        for name in fold:
            folds[name] = measure(matcher, head, draw(train[name], options.pairs), descriptor.ratio)
            print(name, folds[name], flush=True)
    head = fit(list(scenes.values()), descriptor.dim, options.seed)
    if options.weights:
        descriptor.selection = head
        descriptor.save(options.weights, half=True)
    tested = {name: measure(matcher, head, pairs, descriptor.ratio) for name, pairs in test.items()}
    settings = {"descriptor": options.descriptor, "detector": options.detector, "ratio": descriptor.ratio}
    figures = {**settings, "folds": folds, "gains over scale": gains(folds), "test": tested}
    record.write(options.out, options.seed, figures)


def read_pairs(root: Path) -> dict[str, list[PosedPair]]:
    """Return the pairs of all scenes in a folder."""
    return {scene.name: list(pairs_of(scene)) for scene in read_posed_scenes(root)}


def draw(pairs: Sequence[PosedPair], limit: int) -> list[PosedPair]:
    """Draw pairs of all photos of a scene."""
    return draw_pairs(pairs, len({path for pair in pairs for path in pair.paths}), limit)


def label(matcher: PairMatcher, pairs: Sequence[PosedPair], ratio: float) -> Scene:
    """Match pairs of a scene and weight its keypoints as examples."""
    pairs = draw(pairs, PAIRS_TO_LEARN)
    weights = {path: torch.zeros(len(matcher.features(path)), 2) for pair in pairs for path in pair.paths}
    for pair in pairs:
        indices = matcher.match(*pair.paths, ratio).indices
        points = (centres(matcher.features(path).frames)[indices[:, side]] for side, path in enumerate(pair.paths))
        is_right = epipolar_errors(*points, pair.cameras, pair.pose) <= RIGHT
        if (count := is_right.sum()) >= MIN_RIGHT:
            for side, path in enumerate(pair.paths):
                one = torch.tensor([0.0, 1.0]).repeat(len(weights[path]), 1)
                one[indices[is_right, side]] = torch.tensor([1.0, 0.0])
                one[indices[~is_right, side]] = torch.tensor([0.0, WRONG])
                weights[path] += one / count**0.5
    examples = {path: weight / weight.sum() for path, weight in weights.items() if weight.sum()}
    return {path: (selection_inputs(*arguments(matcher.features(path))), weight) for path, weight in examples.items()}


def arguments(features: Features) -> tuple[Tensor, Tensor, Tensor]:
    """Return the arguments of a `SelectionHead`."""
    xy, sizes = (torch.from_numpy(of(features.frames)) for of in (centres, scales))
    return features.descriptors, xy, sizes


def fit(scenes: Sequence[Scene], dim: int, seed: int) -> SelectionHead:
    """Train a score on scenes; all photos have equal weights."""
    torch.manual_seed(seed)
    photos = [photo for scene in scenes for photo in scene.values()]
    inputs, weights = (torch.cat(parts) for parts in zip(*photos, strict=True))
    weights = weights * len(weights) / weights.sum()
    head = SelectionHead(dim)
    head.mean, head.deviation = inputs.mean(0), inputs.std(0) + 1e-3
    optimiser = torch.optim.AdamW(head.parameters(), weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(inputs), (BATCH,))
        scores = head.score(inputs[rows])
        loss = (weights[rows] * torch.stack([softplus(-scores), softplus(scores)], 1)).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return head.requires_grad_(False)


def measure(matcher: PairMatcher, head: SelectionHead, pairs: Sequence[PosedPair], ratio: float) -> Figures:
    """Return the AUC@10 of the pairs of a scene in per cent, for each choice and number of keypoints."""

    def score(features: Features, choice: str) -> NDArray[np.float32]:
        if choice == "learned":
            return head(*arguments(features)).numpy()
        return (
            scales(features.frames) if choice == "scale" else stream(0, "selection").random(len(features), np.float32)
        )

    found: Figures = {}
    area = partial(area_under_recall, threshold=10)
    features = {path: matcher.features(path) for pair in pairs for path in pair.paths}
    for choice in ("scale", "random", "learned"):
        ranked = {(path, 0.0): replace(one, responses=score(one, choice)) for path, one in features.items()}
        chosen = replace(matcher, _features=ranked)
        found[choice] = {str(one): 100 * area(pose_errors(replace(chosen, limit=one), pairs, ratio)) for one in LIMITS}
    return found


def gains(folds: dict[str, Figures]) -> dict[str, dict[str, float]]:
    """Return the mean gain of the learned score over the largest keypoints, with its interval over scenes."""
    return {
        str(one): paired(*([scene[choice][str(one)] for scene in folds.values()] for choice in ("learned", "scale")))
        for one in LIMITS
    }


if __name__ == "__main__":
    main()
