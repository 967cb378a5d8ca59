"""Compare ways to keep the best of too many keypoints: the largest, the strongest, random ones, and a learned score.

    python benchmarks/selection.py TRAIN TEST --descriptor doap-fast --out results/selection.json

TRAIN and TEST are folders of scenes with camera poses (`recipes/scenes.sh`). The score of a keypoint is that of a small
network; its inputs are the descriptor, the size, the rank of the size in the photo, and how similar the other
descriptors of the photo are, because similar ones fail the ratio test. In each scene of TRAIN, the descriptor matches
pairs of photos with up to 8,192 keypoints at its own ratio. A keypoint is a positive example in every pair in which its
match lies within 2 px of the true epipolar lines, and a negative one in all other pairs, where a wrong match counts
four times as much as none. A pair with R right matches has the weight 1/√R, so that a few easy pairs with thousands of
matches do not decide.

The scenes of TRAIN are divided into folds. The pose AUC@10 of each fold is measured for the keypoints with the highest
scores by a network that was trained on the other folds, and for the other choices. Intervals are those of Student's t
for the difference between scenes. The network that is trained on all of TRAIN is measured on TEST. COLMAP's detector
reports no responses, so it has no strongest keypoints. The detectors of one file are completed by further runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from comparison import paired
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

import doap
from doap._support.random_streams import stream
from doap.detectors import akaze, colmap_default, sift
from doap.evaluation.candidates import open_candidate
from doap.evaluation.homography import area_under_recall
from doap.evaluation.pair_matcher import PairMatcher, SharedKeypoints
from doap.evaluation.pose import draw_pairs, pose_errors
from doap.evaluation.posed_scenes import PosedPair, pairs_of, read_posed_scenes
from doap.geometry.pose import epipolar_errors
from doap.images import centres, scales
from doap.metrics import unpack_bits
from doap.types import Features

MAX_KEYPOINTS = 8192
DETECTORS = {
    "colmap-default": colmap_default(),
    "sift": replace(sift(), ranks_by_size=False),
    "akaze": akaze(),
}
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
HIDDEN = (64, 32)
"""Widths of the hidden layers."""
SIMILAR = (0.5, 0.8)
"""Squared distances of unit vectors up to which another descriptor of the image counts as similar."""
# The nearest and the fifth nearest descriptor, and the squared distance of those that do not count.
_NEIGHBOURS = (0, 4)
_FAR = 4.0
_INPUTS = 6
_ROWS = 1024
Scene = dict[Path, tuple[Tensor, Tensor]]
"""Inputs (N, D + 6) of all keypoints of a photo, and their weights (N, 2) as right and as other ones."""
Figures = dict[str, dict[str, float]]
"""AUC@10 by choice of keypoints and their number."""


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("train", type=Path, help="scenes to train on, and to measure in folds")
    parser.add_argument("test", type=Path, help="other scenes")
    parser.add_argument("--descriptor", default="doap-fast", help="name or file")
    parser.add_argument("--detectors", nargs="*", default=list(DETECTORS), choices=list(DETECTORS))
    parser.add_argument("--pairs", type=int, default=60, help="pairs of each scene to measure")
    options = parser.parse_args()
    done = json.loads(options.out.read_text())["detectors"] if options.out and options.out.exists() else {}
    for name in options.detectors:
        if name not in done:
            done[name] = compare(name, options)
            settings = {"descriptor": options.descriptor, "pairs of a scene": options.pairs}
            record.write(options.out, options.seed, {**settings, "detectors": done})


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a detector."""
    descriptor = doap.Descriptor.load(options.descriptor)
    matcher = PairMatcher(open_candidate(descriptor), SharedKeypoints(DETECTORS[name], MAX_KEYPOINTS))
    train, test = read_pairs(options.train), read_pairs(options.test)
    scenes = {scene: label(matcher, pairs, descriptor.ratio) for scene, pairs in train.items()}
    folds: dict[str, Figures] = {}
    for number in range(FOLDS):
        fold = list(train)[number::FOLDS]
        head = fit([examples for scene, examples in scenes.items() if scene not in fold], descriptor.dim, options.seed)
        for scene in fold:
            folds[scene] = measure(matcher, head, draw(train[scene], options.pairs), descriptor.ratio)
            print(name, scene, folds[scene], flush=True)
    head = fit(list(scenes.values()), descriptor.dim, options.seed)
    tested = {scene: measure(matcher, head, pairs, descriptor.ratio) for scene, pairs in test.items()}
    return {"ratio": descriptor.ratio, "folds": folds, "gains over scale": gains(folds), "test": tested}


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
        if choice == "scale":
            return scales(features.frames)
        if choice == "response":
            return features.responses
        if choice == "random":
            return stream(0, "selection").random(len(features), np.float32)
        return head(*arguments(features)).numpy()

    found: Figures = {}
    area = partial(area_under_recall, threshold=10)
    features = {path: matcher.features(path) for pair in pairs for path in pair.paths}
    responses = () if getattr(matcher.shared.detector, "ranks_by_size", False) else ("response",)
    for choice in ("scale", *responses, "random", "learned"):
        ranked = {(path, 0.0): replace(one, responses=score(one, choice)) for path, one in features.items()}
        chosen = replace(matcher, _features=ranked)
        found[choice] = {str(one): 100 * area(pose_errors(replace(chosen, limit=one), pairs, ratio)) for one in LIMITS}
    return found


def gains(folds: dict[str, Figures]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean gains of the other choices over the largest keypoints, with intervals over scenes."""
    return {
        choice: {
            str(one): paired(*([scene[of][str(one)] for scene in folds.values()] for of in (choice, "scale")))
            for one in LIMITS
        }
        for choice in next(iter(folds.values()))
        if choice != "scale"
    }


class SelectionHead(nn.Module):
    """Score of the keypoints of one image: keypoints with higher scores are more often matched correctly.

    Its inputs are the descriptor, the size, the rank of the size in the image, and how similar the other descriptors of
    the image are, because similar ones fail the ratio test.

    >>> SelectionHead(128)(torch.rand(9, 128), torch.rand(9, 2) * 100, torch.rand(9) + 1).shape
    torch.Size([9])

    Args:
        dim: D, the number of dimensions or bits of the descriptor.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        inputs, (first, second) = dim + _INPUTS, HIDDEN
        self.layers = nn.Sequential(
            nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1)
        )
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))

    @torch.no_grad()
    def forward(self, descriptors: Tensor, xy: Tensor, sizes: Tensor) -> Tensor:
        """Return the scores (N,) of all keypoints of an image; the arguments are those of `selection_inputs`."""
        return self.score(selection_inputs(descriptors, xy, sizes))

    def score(self, inputs: Tensor) -> Tensor:
        """Return the scores (N,) of the inputs (N, D + 6), with gradients."""
        scores: Tensor = self.layers((inputs - self.mean) / self.deviation).squeeze(1)
        return scores


def selection_inputs(descriptors: Tensor, xy: Tensor, sizes: Tensor) -> Tensor:
    """Return the inputs (N, D + 6) of `SelectionHead` for all keypoints of an image.

    Args:
        descriptors: (N, D) unit vectors, or (N, D/8) uint8.
        xy: Positions (N, 2) in pixels.
        sizes: Half the sides (N,) of the regions of the keypoints at SIFT's support.
    """
    values = descriptors.float()
    if descriptors.dtype == torch.uint8:
        bits = unpack_bits(descriptors)
        values = (2 * bits.float() - 1) / bits.shape[1] ** 0.5
    rank = sizes.argsort(descending=True, stable=True).argsort() / max(len(sizes), 1)
    return torch.cat([values, sizes.log()[:, None], rank[:, None], _similarity(values, xy, sizes)], 1)


def _similarity(values: Tensor, xy: Tensor, sizes: Tensor) -> Tensor:
    """Return how near the other unit vectors (N, D) of an image are: two distances and two counts (N, 4).

    Keypoints within two σ do not count, because they show the same point.
    """
    last = max(_NEIGHBOURS)
    found = [values.new_zeros(0, 4)]
    for part in torch.arange(len(values)).split(_ROWS):
        distances = (2 - 2 * values[part] @ values.T).clamp(min=0)
        distances[torch.cdist(xy[part], xy) < sizes[part, None] / 3] = _FAR
        # An image may have fewer neighbours.
        nearest = pad(distances, (0, last + 1), value=_FAR).topk(last + 1, largest=False).values
        counts = [(distances < limit).sum(1).add(1).log() for limit in SIMILAR]
        found.append(torch.stack([*(nearest[:, one].sqrt() for one in _NEIGHBOURS), *counts], 1))
    return torch.cat(found)


if __name__ == "__main__":
    main()
