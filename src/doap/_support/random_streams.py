"""Named random streams: one seed, no global generator."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from doap._support.errors import ArgumentError


def stream(seed: int, name: str, *counters: int) -> np.random.Generator:
    """Return a random generator that depends on its arguments only.

    A resumed run, another worker or another rank therefore draws the same numbers in the same step.
    Streams with different names or counters are independent. The name is hashed by CRC-32, because
    Python's own hash changes from process to process.

    >>> stream(0, "augment", 3).integers(8, size=5).tolist() == stream(0, "augment", 3).integers(8, size=5).tolist()
    True

    Args:
        seed: Seed of the run, 0 or more.
        name: Purpose of the numbers.
        counters: For example epoch and step, each 0 or more.
    """
    if min(seed, *counters, 0) < 0:
        raise ArgumentError(f"stream {name!r}: expected a seed and counters of 0 or more, got {(seed, *counters)}")
    key = np.random.SeedSequence(seed, spawn_key=(crc32(name.encode()), *counters))
    return np.random.Generator(np.random.PCG64(key))
