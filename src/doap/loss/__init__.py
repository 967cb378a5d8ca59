"""The losses. Read `average_precision` (the definition) first, then `kernel`, `listwise` and `others`."""

from doap.loss.average_precision import relaxed_average_precision, soft_histogram
from doap.loss.listwise import ListwiseAP
from doap.loss.loss import Loss
from doap.loss.others import HardestTriplet, second_order_difference

LOSSES: dict[str, type[Loss]] = {"listwise-ap": ListwiseAP, "hardest-triplet": HardestTriplet}
"""Losses by the name that recipes use."""

__all__ = [
    "LOSSES",
    "HardestTriplet",
    "ListwiseAP",
    "Loss",
    "relaxed_average_precision",
    "second_order_difference",
    "soft_histogram",
]
