"""Match the descriptors of two images: exact nearest neighbours in bounded memory."""

from doap.matching.match import match_descriptors

__all__ = ["match_descriptors"]
