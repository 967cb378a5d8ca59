"""Matchers: features of two images in, matches out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from doap._support.errors import ArgumentError
from doap.matching.match import match_descriptors
from doap.types import Features, Matches


@runtime_checkable
class Matcher(Protocol):
    """Anything that matches the features of two images: nearest neighbours, a filter of them, or a learned matcher.

    >>> isinstance(NearestNeighbours(ratio=0.9), Matcher)
    True
    """

    def match(self, features0: Features, features1: Features) -> Matches:
        """Match the keypoints of two images."""


@dataclass(frozen=True)
class NearestNeighbours:
    """Matches each keypoint with its nearest neighbour; see `match_descriptors`.

    Attributes:
        ratio, mutual: As for `doap.match`.
    """

    ratio: float | None = None
    mutual: bool = True

    def match(self, features0: Features, features1: Features) -> Matches:
        """Match features of one descriptor; those of two different ones are refused."""
        if len({features0.fingerprint, features1.fingerprint} - {None}) > 1:
            raise ArgumentError(
                "features0 and features1: expected features of one descriptor, got features of two different ones. "
                "Extract both images with the same descriptor."
            )
        queries = features0.descriptors
        gallery = features1.descriptors.to(queries.device)
        pairs, distances = match_descriptors(queries, gallery, ratio=self.ratio, mutual=self.mutual)
        return Matches(np.asarray(pairs.cpu().numpy(), np.int64), -distances.float().cpu().numpy())
