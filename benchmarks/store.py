"""Measure how fast one process writes, opens and randomly reads a patch set.

    python benchmarks/store.py --out results/store.json

A set of about a million random patches is written to a temporary folder and read from the page cache, as after the
first epoch on a machine with enough memory. This measures the code, not the disk. Opening is also measured on a million
groups of tiny patches. Requirements: 20,000 patches/s, and 0.2 s to open a million groups.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import record
from numpy.typing import NDArray

from doap.data.store import PatchSet, open_set
from doap.data.writer import SetWriter, UnitGroups

BATCH = 1_024
GROUPS_PER_UNIT = 4_000


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--batches", type=int, default=500, help="number of batches to read")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure_patches(Path(folder) / "patches", options.batches, rng)
        many = write(Path(folder) / "groups", side=1, units=250, rng=rng)
        figures["groups_of_the_large_set"] = len(open_set(many))
        figures["open_seconds_of_the_large_set"] = median(timed(lambda: open_set(many)) for _ in range(9))
    for name, value in figures.items():
        print(f"{name:>32} {value:,.0f}" if value > 1 else f"{name:>32} {value:.6f}")
    record.write(options.out, options.seed, figures)


def measure_patches(out: Path, batches: int, rng: np.random.Generator) -> dict[str, float]:
    """Measure a set of about a million 32 × 32 patches in groups of 2 to 8. Batches contain whole groups."""
    begin = time.perf_counter()
    path = write(out, side=32, units=50, rng=rng)
    written = time.perf_counter() - begin
    patch_set = open_set(path)
    batch_groups = [batch_of(patch_set, rng) for _ in range(batches)]
    # The first call reads the column. A training step waits only for the later calls.
    patch_set.ignored(batch_groups[0])
    reading = [timed(lambda groups=groups: patch_set.gather(patch_set.members(groups))) for groups in batch_groups]
    gathered = sum(int(patch_set.count[groups].sum()) for groups in batch_groups)
    return {
        "patches": len(patch_set.patches),
        "groups": len(patch_set),
        "written_patches_per_second": len(patch_set.patches) / written,
        "open_seconds": median(timed(lambda: open_set(path)) for _ in range(9)),
        "patches_per_batch": gathered / batches,
        "read_patches_per_second": gathered / sum(reading),
        "ignored_seconds_per_batch": median(
            timed(lambda groups=groups: patch_set.ignored(groups)) for groups in batch_groups
        ),
    }


def write(out: Path, side: int, units: int, rng: np.random.Generator) -> Path:
    """Write random pixels in groups of 2 to 8, about 20,000 patches per unit; every 100th group ignores the next."""
    writer = SetWriter(out, side, {"benchmark": "store"}, [])
    first = np.arange(0, GROUPS_PER_UNIT, 100)
    for unit in range(units):
        count = rng.integers(2, 9, GROUPS_PER_UNIT)
        patches = rng.integers(0, 256, (int(count.sum()), side, side), dtype=np.uint8)
        position = rng.random((GROUPS_PER_UNIT, 3), dtype=np.float32)
        groups = UnitGroups(count, f"scene {unit % 10}", position, "tracks", np.stack([first, first + 1], axis=1))
        writer.add(f"unit {unit}", patches, groups)
    return writer.finish()


def batch_of(patch_set: PatchSet, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return as many random groups as fit completely into a batch."""
    groups = rng.choice(len(patch_set), BATCH // 2, replace=False)
    return groups[patch_set.count[groups].cumsum() <= BATCH]


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
