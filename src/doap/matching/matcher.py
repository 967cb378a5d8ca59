"""Matchers: features of two images in, matches out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError, import_extra
from doap.matching.nearest import match_binary, match_real
from doap.metrics import hamming
from doap.types import Features, Matches


@runtime_checkable
class Matcher(Protocol):
    """Anything that returns matches (M, 2) of two images: nearest neighbours, a filter of them, or a network."""

    def match(self, features0: Features, features1: Features) -> Matches:
        """Match the keypoints of two images."""


@dataclass(frozen=True)
class NearestNeighbours:
    """Matches keypoints that are each other's nearest neighbours, and pass the ratio test if there is a ratio."""

    ratio: float | None = None

    def match(self, features0: Features, features1: Features) -> Matches:
        """Match features of one descriptor; those of two different ones are refused."""
        if len({features0.fingerprint, features1.fingerprint} - {None}) > 1:
            raise ArgumentError(
                "features0 and features1: expected features of one descriptor, got features of two different ones. "
                "Extract both images with the same descriptor."
            )
        queries = features0.descriptors
        gallery = features1.descriptors.to(queries.device)
        pairs, distances = match_descriptors(queries, gallery, ratio=self.ratio)
        return Matches(np.asarray(pairs.cpu().numpy(), np.int64), -distances.float().cpu().numpy())


def match_descriptors(
    queries: Tensor, gallery: Tensor, *, ratio: float | None = None, mutual: bool = True
) -> tuple[Tensor, Tensor]:
    """Match each query with its nearest gallery item, subject to mutual and ratio tests.

    The result equals that of the full distance table and does not depend on device, number of
    threads or block size. Real-valued descriptors need not be normalised. Among equal distances the
    lowest index is the nearest, in both directions.

    >>> queries, gallery = torch.eye(3), torch.eye(3)[[2, 0]]
    >>> match_descriptors(queries, gallery)[0]
    tensor([[0, 1],
            [2, 0]])

    Args:
        queries, gallery: (N0, D) and (N1, D) floats of any type, compared in float32; or (N0, D/8) and (N1, D/8) uint8
            with bits packed by `pack_bits`. Both are on one device.
        ratio: Keep a match only if its distance is below this fraction, in (0, 1], of the distance
            from the query to the second nearest gallery item. A gallery of one item passes every
            ratio.
        mutual: Keep a match only if the query is also the nearest query to the gallery item. The
            ratio test then applies in both directions, as in COLMAP, and the result is symmetric in
            queries and gallery.

    Returns:
        Index pairs (M, 2) int64 of query and gallery item, sorted by query, and distances (M,):
        Euclidean in float32 or Hamming in int32. M is 0 if either side is empty.
    """
    width = check_shape(queries, "N0 D", name="queries")["D"]
    check_shape(gallery, f"N1 {width}", name="gallery")
    binary = queries.dtype == torch.uint8
    fits = (gallery.dtype == torch.uint8) if binary else queries.is_floating_point() and gallery.is_floating_point()
    if not fits or gallery.device != queries.device:
        raise ArgumentError(
            "queries and gallery: expected floats, or uint8 for packed bits, of one kind on one device, "
            f"got {queries.dtype} on {queries.device} and {gallery.dtype} on {gallery.device}."
        )
    if ratio is not None and not 0 < ratio <= 1:
        raise ArgumentError(f"ratio: expected a number in (0, 1], or None to skip the test, got {ratio}.")
    if not len(queries) or not len(gallery):
        distances = torch.empty(0, dtype=torch.int32 if binary else torch.float32, device=queries.device)
        return torch.empty(0, 2, dtype=torch.int64, device=queries.device), distances
    search = match_binary if binary else match_real
    with torch.no_grad():
        nearest, distances, kept = search(queries, gallery, ratio, mutual)
        rows = kept.nonzero().squeeze(1)
        if mutual and ratio is not None and len(rows):
            _, _, passes_back = search(gallery[nearest[rows]], queries, ratio, False)
            rows = rows[passes_back]
        return torch.stack([rows, nearest[rows]], 1), distances[rows]


@dataclass(frozen=True)
class AdaLAM:
    """A matcher that keeps those matches of another matcher whose neighbours move by the same local affine map.

    The code (Cavalli et al., 2020) is kornia's. A table of all N0 · N1 distances is held in memory.
    """

    matcher: Matcher

    def match(self, features0: Features, features1: Features) -> Matches:
        """Match the keypoints of two images."""
        kornia, matches = import_extra("kornia.feature", "kornia"), self.matcher.match(features0, features1)
        consistent: set[tuple[int, ...]] = set()
        if min(len(features0), len(features1)) > 1:
            device = features0.descriptors.device
            descriptors0, descriptors1 = features0.descriptors, features1.descriptors.to(device)
            # AdaLAM squares distances. The number of different bits is the square of their Euclidean distance.
            binary = descriptors0.dtype == torch.uint8
            _, pairs = kornia.match_adalam(
                descriptors0.float(),
                descriptors1.float(),
                torch.from_numpy(features0.frames)[None].to(device),
                torch.from_numpy(features1.frames)[None].to(device),
                hw1=features0.image_size,
                hw2=features1.image_size,
                dm=hamming(descriptors0, descriptors1).float().sqrt() if binary else None,
            )
            consistent = {tuple(pair) for pair in pairs.tolist()}
        kept = np.array([tuple(pair) in consistent for pair in matches.indices.tolist()], np.bool_)
        return Matches(matches.indices[kept], matches.scores[kept])
