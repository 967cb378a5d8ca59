"""Match the features of two images: exact nearest neighbours in bounded memory, and filters of matches."""

from doap.matching.matcher import AdaLAM, Matcher, NearestNeighbours, match_descriptors

__all__ = ["AdaLAM", "Matcher", "NearestNeighbours", "match_descriptors"]
