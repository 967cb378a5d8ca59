"""A small set of patch groups in memory, with the interface of a set on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class MemorySource:
    """Consecutive groups; `never` are pairs of groups that ignore each other, `sources` their photos or models."""

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
        index = {group: position for position, group in enumerate(groups.tolist())}
        pairs = [(index[one], index[other]) for one, other in self.never if one in index and other in index]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def memory_source(counts: list[int], scenes: list[int], side: int = 4, **more: Any) -> MemorySource:
    """Return groups of these sizes in these scenes; the patches are reproducible noise."""
    pixels = np.random.default_rng(0).integers(0, 256, (sum(counts), side, side), dtype=np.uint8)
    names = [f"scene {scene}" for scene in range(max(scenes) + 1)]
    return MemorySource(pixels, np.array(counts), np.array(scenes, dtype=np.int32), names, **more)
