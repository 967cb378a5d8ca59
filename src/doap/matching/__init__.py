"""Match the descriptors of two images: exact nearest neighbours in bounded memory, and filters of matches."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from doap.matching.adalam import adalam
from doap.matching.match import match_descriptors
from doap.types import Features

__all__ = ["FILTERS", "MatchFilter", "adalam", "match_descriptors"]

MatchFilter = Callable[[Features, Features], NDArray[np.int64]]
"""Returns the indices (M, 2) of the matches of two images that are consistent with each other."""

FILTERS: dict[str, MatchFilter] = {"adalam": adalam}
"""Filters of matches by name."""
