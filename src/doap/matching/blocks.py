"""Process a large table of distances in blocks of rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# Elements of the table held at a time: 64 MiB of float32.
BLOCK = 2**24
# More rows do not make the matrix product faster, and its result no longer fits the caches.
MAX_ROWS = 512


def row_blocks(rows: int, columns: int, block: int) -> Iterator[slice]:
    """Yield slices of 0…rows with about `block` elements of the table; no slice exceeds the first."""
    step = min(MAX_ROWS, max(1, block // columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on Apple GPUs, which lack float64."""
    return torch.float32 if device.type == "mps" else torch.float64
