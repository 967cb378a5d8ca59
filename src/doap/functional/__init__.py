"""Pure functions on tensors: distances, Average Precision and other metrics, bits."""

from doap.functional.average_precision import average_precision
from doap.functional.bits import pack_bits, unpack_bits
from doap.functional.distance import euclidean, hamming, pair_distances, table_distances
from doap.functional.metrics import fpr_at_recall, precision_recall_curve
from doap.functional.quantise import quantise

__all__ = [
    "average_precision",
    "euclidean",
    "fpr_at_recall",
    "hamming",
    "pack_bits",
    "pair_distances",
    "precision_recall_curve",
    "quantise",
    "table_distances",
    "unpack_bits",
]
