"""Pure mathematics on tensors: distances, histograms, Average Precision, metrics, bits."""

from doap.functional.average_precision import average_precision, relaxed_average_precision
from doap.functional.bits import pack_bits, unpack_bits
from doap.functional.distance import euclidean, hamming, relaxed_hamming, squared_euclidean
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
    "precision_recall_curve",
    "quantise",
    "relaxed_average_precision",
    "relaxed_hamming",
    "soft_histogram",
    "squared_euclidean",
    "unpack_bits",
]
