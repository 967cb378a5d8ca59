"""What every reader of patches yields, so that one writer can store any of them as patch groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.checks import check_shape
from doap.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Unit:
    """A part of a set that fits in memory: whole groups only, each group's patches side by side.

    Attributes:
        name: of this unit, unique in its set.
        scene: which scene it shows; units of one scene may look alike.
        patches: (N, S, S) uint8, group after group.
        counts: (G,) patches in each group; they sum to N.
        position: (G, 3) float32, where the group is; NaN where the release does not say.
    """

    name: str
    scene: str
    patches: NDArray[np.uint8]
    counts: NDArray[np.int64]
    position: NDArray[np.float32]

    def __post_init__(self) -> None:
        number = check_shape(self.patches, "N S S", name="patches")["N"]
        groups = check_shape(self.counts, "G", name="counts")["G"]
        check_shape(self.position, f"{groups} 3", name="position")
        if self.counts.sum() != number:
            raise ShapeError(f"counts: expected to sum to the {number} patches, got {self.counts.sum()}")


def nowhere(groups: int) -> NDArray[np.float32]:
    """(G, 3) of NaN: positions of groups whose release does not give them."""
    return np.full((groups, 3), np.nan, np.float32)
