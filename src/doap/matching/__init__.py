"""Nearest neighbours of two images' descriptors: exact, in bounded memory."""

from doap.matching.match import match_descriptors

__all__ = ["match_descriptors"]
