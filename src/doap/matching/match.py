"""Match two sets of descriptors."""

from __future__ import annotations

import torch
from torch import Tensor

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError
from doap.matching.binary import match_binary
from doap.matching.real import match_real


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
        queries: (N0, D) floats of any type, compared in float32; or (N0, D/8) uint8 with bits
            packed by `pack_bits`.
        gallery: (N1, D) or (N1, D/8), of the same kind and on the same device.
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
    binary = _is_binary(queries, name="queries")
    if binary != _is_binary(gallery, name="gallery") or queries.device != gallery.device:
        raise ArgumentError(
            "queries and gallery: expected descriptors of one kind on one device, "
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


def _is_binary(descriptors: Tensor, *, name: str) -> bool:
    if descriptors.dtype != torch.uint8 and not descriptors.is_floating_point():
        raise ArgumentError(
            f"{name}: expected floats, or uint8 for packed bits, got {descriptors.dtype}. Convert with .float()."
        )
    return descriptors.dtype == torch.uint8
