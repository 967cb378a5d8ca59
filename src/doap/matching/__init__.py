"""Match the features of two images: exact nearest neighbours in bounded memory, and filters of matches."""

from collections.abc import Callable

from doap.matching.matcher import AdaLAM, Matcher, NearestNeighbours, match_descriptors

__all__ = ["FILTERS", "AdaLAM", "Matcher", "NearestNeighbours", "match_descriptors"]

FILTERS: dict[str, Callable[[Matcher], Matcher]] = {"adalam": AdaLAM}
"""Filters by name; `FILTERS[name](matcher)` is a matcher that drops some matches of another one."""
