"""Descriptors of OpenCV, for patches or for frames of an image.

Given a patch, they read the same pixels as a network. This is a disadvantage for some: SIFT reads
half a bin beyond its 4×4 bins, a quarter more than the patch. Given a frame of an image, they read
everything they need at the resolution they were designed for, as in normal use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from doap.describer import DEFAULT_RATIO, PatchDescriber, ShowsSettings, check_patches
from doap.detectors.opencv import contrib
from doap.images import Pyramid, extract_patches, resize_frames
from doap.types import Kind

PATCH_SIZE = 32
# Patches that are resampled together, and the smallest amount of work for a thread.
_AT_ONCE = 64


class OpenCVBaseline(ShowsSettings, PatchDescriber):
    """A descriptor of OpenCV, computed for one keypoint in the centre of a tile.

    A tile is the input the engine was designed for: the patch with `side` pixels, the surroundings
    the engine reads, and the keypoint on an integer pixel, because most engines round it. A tile is
    cut from the image, or made from a patch by repeating its border. Tiles are described one by
    one. In a mosaic of tiles, engines that blur or diffuse the image would mix patches, and slow
    engines would not be faster.

    Args:
        name: Name in `doap.baselines.BASELINES`.
        create: Creates the engine, a `cv2.Feature2D`, which cannot be pickled and serves one thread.
        dim: D.
        kind: `real` or `binary`.
        side: Side of the patch within the tile, in pixels.
        tile: Side of the tile in pixels. If it is odd, the centre of the patch is the keypoint's
            pixel. If it is even, the centre is the corner before that pixel, for engines whose
            pattern of n pixels spans −n/2 to n/2 − 1.
        keypoint_size: `KeyPoint.size` for which the engine describes the `side` pixels.
        finish: Function (N, D) → (N, D) applied to the engine's output.
        extent: Side of the described region, divided by the side of the detector's frame.
        ratio: Default threshold of the ratio test.
        native: Creates the engine that describes SIFT's keypoints in their octaves, for `compute_natively`; by default,
            `create` describes all of them in its first octave.
    """

    patch_size = PATCH_SIZE

    def __init__(
        self,
        name: str,
        create: Callable[[], Any],
        *,
        dim: int,
        kind: Kind,
        side: int,
        tile: int,
        keypoint_size: float,
        finish: Callable[[Tensor], Tensor] | None = None,
        native: Callable[[], Any] | None = None,
        extent: float = 1.0,
        ratio: float = DEFAULT_RATIO,
    ) -> None:
        self.name, self.dim, self.extent, self.ratio = name, dim, extent, ratio
        self.kind: Kind = kind
        self._create, self._finish, self._native = create, finish, native
        self._side, self._tile, self._keypoint_size = side, tile, keypoint_size
        self._weights = _resampling(side, tile)

    def describe_patches(self, patches: Tensor) -> Tensor:
        """Describe patches (N, 1, 32, 32) in 0…1 as (N, D) float32 or (N, D/8) uint8, on the CPU.

        They are rounded to 8 bits for OpenCV, and described with as many threads as torch uses.
        """
        check_patches(patches, self.patch_size)
        parts = patches.detach().cpu().split(_AT_ONCE)
        return self._in_threads([partial(self._tiles, some) for some in parts if len(some)])

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image, with tiles cut from the image."""
        wide = resize_frames(resize_frames(frames, self.extent), self._tile / self._side)
        pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
        parts = [wide[start : start + _AT_ONCE] for start in range(0, len(wide), _AT_ONCE)]
        return self._in_threads([partial(extract_patches, pyramid, some, self._tile) for some in parts])

    def compute_natively(self, image: NDArray[np.uint8], keypoints: Sequence[Any]) -> NDArray[Any]:
        """Describe all keypoints of an image with one call of OpenCV, as in normal use.

        It is much faster than tiles and therefore what a benchmark of speed has to time. The keypoints are described
        at the scales that the engine chooses, so that the descriptors of some engines have other supports. Engines drop
        keypoints close to the border.

        Args:
            image: Grey pixels (H, W).
            keypoints: `cv2.KeyPoint` of `cv2.SIFT.detect`.
        """
        # Engines other than SIFT read `octave` as an index of their own pyramid.
        given = [
            _keypoint(one.pt[0], one.pt[1], self.extent * one.size, one.angle, one.octave if self._native else 0)
            for one in keypoints
        ]
        engine = (self._native or self._create)()
        described: NDArray[Any] = engine.compute(image, given)[1]
        return described

    def _tiles(self, patches: Tensor) -> NDArray[np.uint8]:
        """Resample patches (N, 1, 32, 32) to tiles (N, T, T)."""
        pixels = (patches[:, 0].float() * 255).round().clamp(0, 255)
        tiles: NDArray[np.uint8] = (self._weights @ pixels @ self._weights.T).round().to(torch.uint8).numpy()
        return tiles

    def _in_threads(self, parts: Sequence[Callable[[], NDArray[np.uint8]]]) -> Tensor:
        """Describe tiles with as many threads as torch uses; a part returns up to 64."""
        none = torch.zeros(0, self.dim) if self.kind == "real" else torch.zeros(0, self.dim // 8, dtype=torch.uint8)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            rows = torch.cat([none, *pool.map(self._describe_tiles, parts)])
        return rows if self._finish is None else self._finish(rows)

    def _describe_tiles(self, cut: Callable[[], NDArray[np.uint8]]) -> Tensor:
        engine, keypoint = self._create(), _keypoint(self._tile // 2, self._tile // 2, self._keypoint_size, 0)
        return torch.from_numpy(np.concatenate([engine.compute(tile, [keypoint])[1] for tile in cut()]))


def sift(extent: float = 1.0) -> OpenCVBaseline:
    """Create OpenCV's SIFT with 128 dimensions; rows have unit length, and a flat patch is all zeros.

    >>> sift().describe_patches(torch.rand(3, 1, 32, 32)).shape
    torch.Size([3, 128])
    """
    return _sift("sift", normalize, extent, ratio=0.85)


def rootsift() -> OpenCVBaseline:
    """Create RootSIFT: square roots of L1-normalised SIFT (Arandjelović and Zisserman, 2012)."""
    return _sift("rootsift", _normalised_root, ratio=0.85)


def rootsift_wide() -> OpenCVBaseline:
    """Create RootSIFT of 1.5 times its support, which separates the effect of wider patches from that of learning."""
    return _sift("rootsift-wide", _normalised_root, 1.5)


def teblid() -> OpenCVBaseline:
    """Create TEBLID with 256 bits (Suárez et al., 2021)."""
    import cv2

    create = contrib("TEBLID_create", needed_by="teblid")
    # With a scale factor of 1, the keypoint size is the side of the described region. Trained on 32×32 pixels.
    engine = partial(create, 1.0, cv2.xfeatures2d.TEBLID_SIZE_256_BITS)
    return OpenCVBaseline("teblid", engine, dim=256, kind="binary", side=32, tile=32, keypoint_size=32, ratio=0.85)


def orb() -> OpenCVBaseline:
    """Create ORB with 256 bits; each compares the brightness of two points (Rublee et al., 2011)."""
    import cv2

    # The points are up to 13 pixels from the keypoint, regardless of its size. On training photos,
    # 27 is the best of 24, 27, 31, 36 and 40. The blur reads three more pixels.
    engine = partial(cv2.ORB.create, nlevels=1, edgeThreshold=0)
    return OpenCVBaseline("orb", engine, dim=256, kind="binary", side=27, tile=39, keypoint_size=31)


def akaze() -> OpenCVBaseline:
    """Create M-LDB, the descriptor of AKAZE, with 486 bits (Alcantarilla et al., 2013).

    D is 488 because bits are packed into bytes. The last two bits are always 0 and do not change
    distances.
    """
    # The finest level of the scale space, with AKAZE's own keypoint size there: the cells cover ten
    # sizes, and the blur is σ = 1.6. Coarser levels depend on the contrast of the whole image,
    # which a patch does not contain. On training photos, patches of 48 pixels (cropped) and of 80
    # (with a size of 8) scored 0.005 and 0.006 higher.
    engine = partial(contrib("AKAZE_create", needed_by="akaze"), nOctaves=1, nOctaveLayers=1)
    return OpenCVBaseline("akaze", engine, dim=488, kind="binary", side=40, tile=53, keypoint_size=4)


def _sift(
    name: str, finish: Callable[[Tensor], Tensor], extent: float = 1.0, ratio: float = DEFAULT_RATIO
) -> OpenCVBaseline:
    """Create SIFT whose 4×4 bins of 3σ cover the patch: its side is 12σ, or six times `KeyPoint.size`.

    SIFT reads the pyramid level given by the keypoint's `octave`. Octave 0 is the first level, so
    `sigma` gives that level the blur σ. OpenCV computes the other levels too, which nothing reads. They take the least
    time with three layers: with one, there are fewer of them, but each is blurred with a wider kernel.
    """
    import cv2

    return OpenCVBaseline(
        name,
        partial(cv2.SIFT.create, nOctaveLayers=3, sigma=PATCH_SIZE / 12),
        dim=128,
        kind="real",
        side=PATCH_SIZE,
        # Interpolation between bins reads a quarter of the patch beyond its border.
        tile=PATCH_SIZE * 3 // 2 + 1,
        keypoint_size=PATCH_SIZE / 6,
        finish=finish,
        native=cv2.SIFT.create,
        extent=extent,
        ratio=ratio,
    )


def _normalised_root(described: Tensor) -> Tensor:
    return normalize(described, p=1).sqrt()


def _keypoint(x: float, y: float, size: float, angle: float, octave: int = 0) -> Any:
    import cv2

    # AKAZE reads its pyramid level from `class_id` and terminates the process if there is none.
    return cv2.KeyPoint(x, y, size, angle=angle, response=0, octave=octave, class_id=0)


def _resampling(side: int, tile: int) -> Tensor:
    """Return weights (T, 32) that resample a patch to a tile: linear, antialiased, border repeated."""
    position = (torch.arange(tile) - (tile - 1) / 2) * PATCH_SIZE / side + (PATCH_SIZE - 1) / 2
    apart = (position.clamp(0, PATCH_SIZE - 1)[:, None] - torch.arange(PATCH_SIZE)).abs()
    weights = (1 - apart / max(1, PATCH_SIZE / side)).clamp(min=0)
    return weights / weights.sum(dim=1, keepdim=True)
