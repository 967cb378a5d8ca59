"""A candidate with a disk cache and a timer, used by all benchmarks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.checks import check_finite, check_shape
from doap._support.errors import ArgumentError
from doap._support.files import atomic_write
from doap.detectors import Detector, sift
from doap.evaluation.descriptors import Candidate
from doap.extractor import Extractor, KeypointExtractor, extract_sample
from doap.images import Pyramid
from doap.pipeline import describe_patches
from doap.types import Features

Needs = Literal["patches", "frames", "images"]
"""What a benchmark gives to a descriptor: patches, an image with the frames of its keypoints, or whole images."""


class CachedDescriber:
    """Describe patches or frames of an image, or extract features, and cache the output on disk.

    The cache is a folder of `KEY.npz` files. The key is a checksum of the pixels, of the candidate's fingerprint and of
    the descriptors of a fixed image, so other pixels, weights, devices or precisions do not share an entry.

    Args:
        candidate: Descriptor or pipeline to use.
        cache: Cache folder, created on first use; None to disable the cache.

    Attributes:
        seconds: Time spent describing so far, without cache hits.
        fingerprint: Fingerprint of the candidate.
    """

    def __init__(self, candidate: Candidate, cache: Path | None = None) -> None:
        self.candidate, self.cache, self.seconds = candidate, cache, 0.0
        extractor = candidate.extractor
        if extractor is None:
            assert candidate.describer is not None
            extractor = KeypointExtractor(candidate.describer, sift())
        self.fingerprint = extractor.fingerprint()
        self._key = hashlib.sha256(self.fingerprint.encode())
        if cache:
            self._key.update(extract_sample(extractor).descriptors.cpu().contiguous().numpy().data)

    def check(self, needs: Needs, detector: Detector | None = None) -> None:
        """Check that the candidate can work with what a benchmark needs; `detector` is that of its frames."""
        one = self.candidate
        if needs == "patches" and one.patch_describer is None:
            raise ArgumentError(
                f"{one.name}: expected a descriptor of patches, got one that needs the image. Evaluate it on images."
            )
        own = None if one.extractor is None else one.extractor.detector
        if needs == "frames" and (one.describer is None or own not in (None, detector)):
            remedy = f"Use the detector {own.name}." if own and one.describer else "Evaluate it on pairs of images."
            raise ArgumentError(
                f"{one.name}: expected a descriptor of given keypoints, got one that only describes its own. {remedy}"
            )

    def describe_patches(self, patches: NDArray[np.uint8]) -> Tensor:
        """Describe patches (N, S, S) of any size as (N, D) float32 or (N, D/8) uint8, on the CPU."""
        check_shape(patches, "N S S", name="patches")
        describer = self.candidate.patch_describer
        assert describer is not None
        return self._cached(lambda: [describe_patches(describer, patches)], patches)[0]

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image, with the output of `describe_patches`."""
        describer = self.candidate.describer
        assert describer is not None
        pixels = image.levels[0] if isinstance(image, Pyramid) else image
        return self._cached(lambda: [describer.describe(image, frames)], pixels, frames)[0]

    def extract(self, image: NDArray[np.uint8], max_keypoints: int) -> Features:
        """Extract the features of a grey image (H, W) with the candidate's own detector."""
        extractor = self.candidate.extractor
        assert extractor is not None

        def compute() -> list[Tensor]:
            found = extract_whole(extractor, image, max_keypoints)
            return [torch.from_numpy(found.frames), torch.from_numpy(found.responses), found.descriptors]

        frames, responses, descriptors = self._cached(compute, image, np.array(max_keypoints))
        return Features(frames.numpy(), responses.numpy(), descriptors, (image.shape[0], image.shape[1]))

    def _cached(self, compute: Callable[[], Sequence[Tensor]], *inputs: NDArray[Any]) -> list[Tensor]:
        """Return the cached output for these inputs, or call `compute` and cache its output."""
        file = self._file(inputs)
        if file and file.exists():
            with np.load(file) as stored:
                return [torch.from_numpy(stored[name]) for name in stored.files]
        begin = time.perf_counter()
        computed = [tensor.cpu() for tensor in compute()]
        self.seconds += time.perf_counter() - begin
        check_finite(computed[-1], name="descriptors")
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as unfinished, unfinished.open("wb") as stream:
                np.savez(stream, *(tensor.numpy() for tensor in computed))
        return computed

    def _file(self, inputs: Sequence[NDArray[Any]]) -> Path | None:
        if self.cache is None:
            return None
        digest = self._key.copy()
        for array in inputs:
            digest.update(f" {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return self.cache / f"{digest.hexdigest()}.npz"


def extract_whole(extractor: Extractor, image: NDArray[np.uint8], max_keypoints: int) -> Features:
    """Extract the features of a grey image (H, W) of any size, without downscaling it and without a fingerprint."""
    prepared = extractor.prepare(image, max_keypoints=max_keypoints, max_image_size=max(image.shape))
    return extractor.finish([prepared])[0]
