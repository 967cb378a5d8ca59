"""Validation of a descriptor on held-out patches: mean Average Precision and FPR95, in seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from doap.describer import PatchDescriber
from doap.evaluation.validation.retrieval import retrieve
from doap.evaluation.validation.sample import PatchSample
from doap.metrics import fpr_at_recall, pair_distances
from doap.pipeline import describe_patches


@dataclass(frozen=True)
class ValidationScores:
    """Scores of a descriptor on held-out patches.

    Attributes:
        map: Mean Average Precision with each patch as a query, expected over random orders of ties.
        fpr95: False-positive rate at 95 % recall; ties count against the descriptor.
        fpr95_expected: The same, expected over random orders of ties; it differs for binary descriptors.
        seconds: Time to describe the patches and to compute the scores.
    """

    map: float
    fpr95: float
    fpr95_expected: float
    seconds: float


def validate(describer: PatchDescriber, sample: PatchSample) -> ValidationScores:
    """Score retrieval and verification on a sample; the (M, M) distances are never held in memory at once."""
    begin = time.perf_counter()
    descriptors = describe_patches(describer, sample.patches)
    precision = retrieve(descriptors, sample.relation).average_precision
    pairs = torch.cat([sample.positives, sample.negatives])
    distances = pair_distances(descriptors[pairs[:, 0]], descriptors[pairs[:, 1]])
    is_positive = torch.arange(len(pairs)) < len(sample.positives)
    return ValidationScores(
        map=float(precision.mean()),
        fpr95=fpr_at_recall(distances, is_positive),
        fpr95_expected=fpr_at_recall(distances, is_positive, ties="expected"),
        seconds=time.perf_counter() - begin,
    )
