"""Pure functions on tensors: distances, Average Precision and other metrics, bits."""

from doap.metrics.average_precision import average_precision
from doap.metrics.bits import pack_bits, quantise, unit_vectors, unpack_bits
from doap.metrics.distance import hamming, pair_distances, table_distances
from doap.metrics.metrics import fpr_at_recall

__all__ = [
    "average_precision",
    "fpr_at_recall",
    "hamming",
    "pack_bits",
    "pair_distances",
    "quantise",
    "table_distances",
    "unit_vectors",
    "unpack_bits",
]
