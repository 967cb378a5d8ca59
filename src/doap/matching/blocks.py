"""How a large table of distances is walked through: some whole rows at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# Numbers of a table held at a time: 64 MiB of float32.
BLOCK = 2**24
# With more rows a product is no faster, and its result no longer fits the caches.
MOST_ROWS = 512


def row_blocks(rows: int, columns: int, block: int) -> Iterator[slice]:
    """Slices of 0…rows, in order, of about `block` numbers each and one row at least; none is taller than the first."""
    step = min(MOST_ROWS, max(1, block // columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def widest_float(device: torch.device) -> torch.dtype:
    """float64, which Apple's GPUs do not have."""
    return torch.float32 if device.type == "mps" else torch.float64
