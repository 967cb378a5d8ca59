"""Pure functions on tensors: distances, histograms, Average Precision, metrics and bits.

`relaxed_average_precision` computes the AP that the loss optimises, `average_precision` the one that is reported.
"""

from doap.functional.average_precision import average_precision, relaxed_average_precision
from doap.functional.bits import pack_bits, unpack_bits
from doap.functional.distance import (
    euclidean,
    hamming,
    pair_distances,
    relaxed_hamming,
    squared_euclidean,
    table_distances,
)
from doap.functional.histogram import soft_histogram
from doap.functional.listwise import listwise_average_precision
from doap.functional.metrics import fpr_at_recall, precision_recall_curve
from doap.functional.quantise import quantise

__all__ = [
    "average_precision",
    "euclidean",
    "fpr_at_recall",
    "hamming",
    "listwise_average_precision",
    "pack_bits",
    "pair_distances",
    "precision_recall_curve",
    "quantise",
    "relaxed_average_precision",
    "relaxed_hamming",
    "soft_histogram",
    "squared_euclidean",
    "table_distances",
    "unpack_bits",
]
