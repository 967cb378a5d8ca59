"""A describer with a memory on disk and a clock: what benchmarks describe patches with."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.checks import check_shape
from doap.describer import Describer, ImageDescriber, fingerprint
from doap.files import atomic_write
from doap.images import Pyramid
from doap.pipeline import cut_patches, describe_patches


class CachedDescriber:
    """Describes patches, or frames of an image, and remembers what it described.

    The memory is a folder of `KEY.npy`, where the key is the checksum of the patches and of what the describer makes of
    fixed ones: it cannot hold what other pixels or other weights gave.

    Args:
        describer: what to describe with.
        memory: a folder, made when first needed; None forgets.

    Attributes:
        seconds: spent in describing so far, without what was remembered.
    """

    def __init__(self, describer: Describer, memory: Path | None = None) -> None:
        self.describer, self.memory, self.seconds = describer, memory, 0.0
        self.fingerprint = fingerprint(describer)

    def patches(self, patches: NDArray[np.uint8]) -> Tensor:
        """(N, S, S) → (N, D) float32 or (N, D/8) uint8, on the CPU; patches of another size are sampled anew."""
        check_shape(patches, "N S S", name="patches")
        return self._described(lambda: describe_patches(self.describer, patches), patches)

    def frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Descriptors of frames (N, 2, 3) of a grey image, as `patches`."""
        describer = self.describer
        if not isinstance(describer, ImageDescriber):
            return self.patches(cut_patches(image, frames, describer))
        pixels = image.levels[0] if isinstance(image, Pyramid) else image
        return self._described(lambda: describer.describe_frames(image, frames), pixels, frames)

    def _described(self, describe: Callable[[], Tensor], *inputs: NDArray[Any]) -> Tensor:
        """What is remembered of these inputs, or else what `describe` makes of them, timed."""
        file = self._file(inputs)
        if file and file.exists():
            with file.open("rb") as stream:
                return torch.from_numpy(np.load(stream))
        begin = time.perf_counter()
        described = describe()
        self.seconds += time.perf_counter() - begin
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as unfinished, unfinished.open("wb") as stream:
                np.save(stream, described.numpy())
        return described

    def _file(self, inputs: Sequence[NDArray[Any]]) -> Path | None:
        if self.memory is None:
            return None
        digest = hashlib.sha256(self.fingerprint.encode())
        for array in inputs:
            digest.update(f" {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return self.memory / f"{digest.hexdigest()}.npy"
