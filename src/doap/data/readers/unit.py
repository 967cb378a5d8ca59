"""The unit that all readers of patches yield, so that one writer stores any dataset as a patch set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap._support.checks import check_shape
from doap._support.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Unit:
    """A part of a dataset that fits in memory and consists of whole groups.

    Attributes:
        name: Name of the unit, unique in its dataset.
        scene: Name of the scene. Units may share a scene.
        patches: (N, S, S) uint8, ordered by group.
        counts: (G,) number of patches of each group; they sum to N.
        position: (G, 3) float32 position of each group; NaN if unknown.
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
            raise ShapeError(f"counts: expected a sum of {number}, the number of patches, got {self.counts.sum()}.")


def unknown_positions(groups: int) -> NDArray[np.float32]:
    """Return positions (G, 3) of NaN."""
    return np.full((groups, 3), np.nan, np.float32)
