"""A small set of patch groups in memory: what samplers, lists and mining ask of a set on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class MemorySource:
    """Groups one behind the other; `never` are pairs of groups that ignore each other, `sources` what made them."""

    patches: NDArray[np.uint8]
    count: NDArray[np.int64]
    scene_ids: NDArray[np.int32]
    scene_names: list[str]
    never: list[tuple[int, int]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)

    @property
    def start(self) -> NDArray[np.int64]:
        return self.count.cumsum() - self.count

    @property
    def source_ids(self) -> NDArray[np.int32]:
        return np.array(self.sources or [0] * len(self.count), dtype=np.int32)

    @property
    def source_names(self) -> list[str]:
        return ["tracks", *(f"{number}.jpg" for number in range(1, int(self.source_ids.max()) + 1))]

    @property
    def patch_size(self) -> int:
        return int(self.patches.shape[1])

    def gather(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        return self.patches.take(indices, axis=0)

    def ignored(self, groups: NDArray[Any]) -> NDArray[np.int64]:
        place = {group: position for position, group in enumerate(groups.tolist())}
        pairs = [(place[one], place[other]) for one, other in self.never if one in place and other in place]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def memory_source(counts: list[int], sequences: list[int], side: int = 4, **more: Any) -> MemorySource:
    """Groups of these sizes in these sequences; the patches are noise, the same each time."""
    pixels = np.random.default_rng(0).integers(0, 256, (sum(counts), side, side), dtype=np.uint8)
    names = [f"place {sequence}" for sequence in range(max(sequences) + 1)]
    return MemorySource(pixels, np.array(counts), np.array(sequences, dtype=np.int32), names, **more)
