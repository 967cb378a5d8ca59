"""Which descriptors of two images belong together."""

from __future__ import annotations

import torch
from torch import Tensor

from doap.checks import check_shape
from doap.errors import ArgumentError
from doap.matching.binary import match_binary
from doap.matching.real import match_real


def match_descriptors(
    queries: Tensor, gallery: Tensor, *, ratio: float | None = None, mutual: bool = True
) -> tuple[Tensor, Tensor]:
    """Pair each query with its nearest gallery item, unless the pair fails a test.

    The answer is that of the full table of distances, whatever the device, the number of threads or the size of the
    blocks in which the table is walked through. Real-valued rows need not be unit. Of equal distances the lowest index
    is the nearest, in both directions.

    >>> queries, gallery = torch.eye(3), torch.eye(3)[[2, 0]]
    >>> match_descriptors(queries, gallery)[0]
    tensor([[0, 1],
            [2, 0]])

    Args:
        queries: (N0, D) floats of any type, computed in float32; or (N0, D/8) uint8, bits as `pack_bits` makes them.
        gallery: (N1, D) or (N1, D/8) alike.
        ratio: keep a pair only if its distance is below this share, in (0, 1], of the distance from the query to the
            second nearest gallery item. A gallery of one has no second: it counts as infinitely far.
        mutual: keep a pair only if the query is also the nearest to the gallery item, among all queries. A ratio must
            then hold from both sides, as COLMAP has it, and the answer is the same whichever side asks.

    Returns:
        Pairs (M, 2) int64 of query and gallery item, increasing in the first, and their distances (M,): Euclidean in
        float32, or Hamming in int32. M is 0 if either side is empty.
    """
    width = check_shape(queries, "N0 D", name="queries")["D"]
    check_shape(gallery, f"N1 {width}", name="gallery")
    binary = _is_binary(queries, name="queries")
    if binary != _is_binary(gallery, name="gallery") or queries.device != gallery.device:
        raise ArgumentError(
            "queries and gallery: expected descriptors of one kind on one device, "
            f"got {queries.dtype} on {queries.device} and {gallery.dtype} on {gallery.device}"
        )
    if ratio is not None and not 0 < ratio <= 1:
        raise ArgumentError(f"ratio: expected a number above 0 and up to 1, or None for no test, got {ratio}")
    if not len(queries) or not len(gallery):
        distances = torch.empty(0, dtype=torch.int32 if binary else torch.float32, device=queries.device)
        return torch.empty(0, 2, dtype=torch.int64, device=queries.device), distances
    with torch.no_grad():
        search = match_binary if binary else match_real
        nearest, distances, kept = search(queries, gallery, ratio, mutual)
        rows = kept.nonzero().squeeze(1)
        if mutual and ratio is not None:
            rows = rows[search(gallery[nearest[rows]], queries, ratio, False)[2]] if len(rows) else rows
        return torch.stack([rows, nearest[rows]], 1), distances[rows]


def _is_binary(descriptors: Tensor, *, name: str) -> bool:
    if descriptors.dtype != torch.uint8 and not descriptors.is_floating_point():
        raise ArgumentError(
            f"{name}: expected floats, or uint8 for bits, got {descriptors.dtype}; convert with .float()"
        )
    return descriptors.dtype == torch.uint8
