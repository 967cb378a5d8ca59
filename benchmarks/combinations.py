"""Are poses limited by the descriptor? Score combinations of networks and patch widths.

    python benchmarks/combinations.py SCENES SEQUENCES doap-128 doap-128+doap-128@2*0.7 doap-fast+doap-fast@2 \\
        --runs RUNS --out results/combinations.json

A combination joins parts by `+`. A part is NAME[@EXTENT][*WEIGHT], with anything that `doap.load` loads as its name.
Combinations concatenate the descriptors of their parts: the cosine similarity is the mean of those of the parts,
weighted by the squared weights. With `--pool`, they are added instead, as DSP-SIFT does, and the result has as many
dimensions as one part. A combination takes as long as all of its parts, so it shows what a better descriptor could
achieve, not one to deploy.

With `--affine AffNet.pth`, the keypoints have the affine shape that AffNet estimates from patches of 12 σ.

SCENES, SEQUENCES and RUNS are those of `benchmarks/candidates.py`, and so are the numbers of images and pairs.
RUNS also receives the descriptors of all parts, so that combinations share them. Rerun the same command to continue.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn

import numpy as np
import record
import torch
import training_runs
from candidates import IMAGES, PAIRS
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

import doap
from doap.describer import Describer, ShowsSettings, fingerprint
from doap.errors import ArgumentError
from doap.evaluation.cached_describer import CachedDescriber
from doap.images import Pyramid, extract_patches, frames_from_affine, resize_frames
from doap.types import Kind

PART = re.compile(r"(?P<name>[^@*]+)(@(?P<extent>[\d.]+))?(\*(?P<weight>[\d.]+))?")


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("scenes", type=Path, help="scenes of `doap data from-poses`")
    parser.add_argument("sequences", type=Path, help="planar validation sequences")
    parser.add_argument("combinations", nargs="+", help="NAME[@EXTENT][*WEIGHT], joined by +")
    parser.add_argument("--pool", action="store_true", help="add the descriptors instead of concatenating them")
    parser.add_argument("--affine", type=Path, help="weights of AffNet; default: the frames of the detector")
    parser.add_argument("--runs", type=Path, required=True, help="folder for scores and descriptors")
    options = parser.parse_args()
    scorer = training_runs.Scorer(options.scenes, options.sequences, images=IMAGES, pairs=PAIRS)
    shape = None if options.affine is None else AffineShape(options.affine)
    settings = {"pooled": options.pool, "affine shape": shape is not None, "images": IMAGES, "pairs": PAIRS}
    rows = []
    for text in options.combinations:
        combination = Combination(text, options.runs / "descriptors", pooled=options.pool, shape=shape)
        scores = scorer.score(options.runs / fingerprint(combination), combination)
        rows.append({"combination": text, "dim": combination.dim, **scores})
        print(rows[-1], flush=True)
        record.write(options.out, options.seed, {**settings, "rows": rows})


class AffineShape:
    """The affine shape of keypoints, estimated by AffNet.

    Args:
        file: Weights of AffNet.
    """

    def __init__(self, file: Path) -> None:
        from kornia.feature import LAFAffNetShapeEstimator

        self._network = LAFAffNetShapeEstimator(pretrained=False).eval()
        self._network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True)["state_dict"])

    @torch.inference_mode()
    def adapt(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the frames (N, 2, 3) with another shape, and the same area and vertical direction."""
        patches = torch.from_numpy(extract_patches(image, frames, 32)).unsqueeze(1).float()
        deviation, mean = torch.std_mean(patches, dim=(1, 2, 3), keepdim=True)
        horizontal, skew, vertical = self._network.features((patches - mean) / (deviation + 1e-6)).flatten(1).T
        shape = torch.zeros(len(frames), 2, 2)
        shape[:, 0, 0], shape[:, 1, 0], shape[:, 1, 1] = 1 + horizontal, skew, 1 + vertical
        shape /= torch.linalg.det(shape).clamp(min=1e-4).sqrt().view(-1, 1, 1)
        return frames_from_affine(frames[:, :, 2], frames[:, :, :2] @ shape.numpy())


class Combination(ShowsSettings):
    """Several real-valued descriptors of the same keypoints as one `ImageDescriber`.

    Args:
        text: The parts; see the top of this file.
        cache: Folder for the descriptors of the parts.
        pooled: Add the descriptors instead of concatenating them.
        shape: Affine shape of the keypoints; None for the frames of the detector.
    """

    kind: Kind = "real"
    name, extent = "combination", 1.0

    def __init__(self, text: str, cache: Path, *, pooled: bool = False, shape: AffineShape | None = None) -> None:
        parts = [_parse_part(part) for part in text.split("+")]
        self._parts = [(CachedDescriber(part, cache), extent, weight) for part, extent, weight in parts]
        self._pooled, self._shape = pooled, shape
        self.patch_size = parts[0][0].patch_size
        self.dim = parts[0][0].dim if pooled else sum(part.dim for part, _, _ in parts)

    def describe(self, patches: Tensor) -> NoReturn:
        """Raise `ArgumentError`: the parts need patches of different widths."""
        raise ArgumentError(f"{self.name}: expected an image, got {len(patches)} patches. Describe frames of an image.")

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image as unit vectors (N, D) float32."""
        if self._shape is not None:
            frames = self._shape.adapt(image, frames)
        described = [
            weight * part.describe_frames(image, resize_frames(frames, extent)) for part, extent, weight in self._parts
        ]
        return normalize(torch.stack(described).sum(dim=0) if self._pooled else torch.cat(described, dim=1))


def _parse_part(text: str) -> tuple[Describer, float, float]:
    """Return descriptor, extent and weight of NAME[@EXTENT][*WEIGHT]."""
    matched = PART.fullmatch(text)
    if matched is None:
        raise ArgumentError(f"{text}: expected NAME[@EXTENT][*WEIGHT], such as doap-128@2*0.7")
    return doap.load(matched["name"]), float(matched["extent"] or 1), float(matched["weight"] or 1)


if __name__ == "__main__":
    main()
