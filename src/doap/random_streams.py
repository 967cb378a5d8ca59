"""Named streams of random numbers: one seed, no global generator."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from doap.errors import ArgumentError


def stream(seed: int, name: str, *counters: int) -> np.random.Generator:
    """A generator that depends on its arguments and on nothing else.

    Step 900 of a resumed run, or of another worker or rank, draws what it would have drawn anyway. Streams of
    different names or counters are independent. The name is hashed by CRC-32, since Python's own hash changes from
    one process to the next.

    >>> stream(0, "augment", 3).integers(8, size=5).tolist() == stream(0, "augment", 3).integers(8, size=5).tolist()
    True

    Args:
        seed: the one seed of the run, 0 or more.
        name: what the numbers are for.
        counters: epoch, step or the like, each 0 or more.
    """
    if min(seed, *counters, 0) < 0:
        raise ArgumentError(f"stream {name!r}: expected a seed and counters of 0 or more, got {(seed, *counters)}")
    key = np.random.SeedSequence(seed, spawn_key=(crc32(name.encode()), *counters))
    return np.random.Generator(np.random.PCG64(key))
