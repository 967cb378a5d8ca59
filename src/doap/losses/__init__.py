"""Losses for descriptors: `loss(descriptors, groups)`. A loss sees tensors, never a network or a dataset."""

from doap.losses.listwise_ap import ListwiseAP
from doap.losses.triplet import HardestTriplet

LOSSES = {"listwise-ap": ListwiseAP, "hardest-triplet": HardestTriplet}

__all__ = ["LOSSES", "HardestTriplet", "ListwiseAP"]
