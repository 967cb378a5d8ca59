"""Pure functions on tensors: distances, Average Precision and other metrics, bits."""

from doap.metrics.average_precision import average_precision
from doap.metrics.bits import pack_bits, unpack_bits
from doap.metrics.distance import euclidean, hamming, pair_distances, table_distances
from doap.metrics.metrics import fpr_at_recall, precision_recall_curve
from doap.metrics.quantise import quantise

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
