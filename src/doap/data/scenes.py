"""Places held out: what a descriptor is judged on must not be what it was trained on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doap.data.sampler import GroupSource
from doap.errors import DataError
from doap.random_streams import stream


def hold_out(source: GroupSource, share: float, seed: int) -> NDArray[np.bool_]:
    """(G,) bool: groups of places drawn at random until they make up about `share` of all groups.

    Whole places, since photos of one place show the same points; at least one place is drawn and one is left.
    """
    sizes = np.bincount(source.scene_ids, minlength=len(source.scene_names))
    places = stream(seed, "held-out places").permutation(np.flatnonzero(sizes))
    if len(places) < 2:
        raise DataError(f"source: expected two places or more to hold one out, got {len(places)}; give data.validation")
    drawn = np.searchsorted(sizes[places].cumsum(), share * sizes.sum()) + 1
    return np.isin(source.scene_ids, places[: min(drawn, len(places) - 1)])
