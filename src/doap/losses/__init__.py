"""Losses for descriptors: `loss(descriptors, groups)`. A loss sees tensors, never a network or a dataset."""

from doap.losses.listwise_ap import ListwiseAP
from doap.losses.loss import Loss
from doap.losses.regularised_ap import RegularisedAP
from doap.losses.triplet import HardestTriplet

LOSSES: dict[str, type[Loss]] = {
    "listwise-ap": ListwiseAP,
    "regularised-ap": RegularisedAP,
    "hardest-triplet": HardestTriplet,
}
"""Losses by the name that recipes use."""

__all__ = ["LOSSES", "HardestTriplet", "ListwiseAP", "Loss", "RegularisedAP"]
