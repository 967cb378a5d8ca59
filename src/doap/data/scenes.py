"""Scenes held out of training, for validation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap._support.random_streams import stream
from doap.data.sampler import GroupSource


def hold_out(source: GroupSource, share: float, seed: int) -> NDArray[np.bool_]:
    """Return (G,) bool, True for the groups of random scenes that together have about a share of all groups.

    Whole scenes are held out because photos of one scene show the same points. At least one scene is held out and at
    least one is left.
    """
    sizes = np.bincount(source.scene_ids, minlength=len(source.scene_names))
    scenes = stream(seed, "held-out scenes").permutation(np.flatnonzero(sizes))
    if len(scenes) < 2:
        raise DataError(
            f"source: expected two scenes or more to hold one out, got {len(scenes)}; set data.validation instead"
        )
    number = np.searchsorted(sizes[scenes].cumsum(), share * sizes.sum()) + 1
    return np.isin(source.scene_ids, scenes[: min(number, len(scenes) - 1)])
