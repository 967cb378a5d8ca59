"""How good is a describer on patches it was not trained on? Mean Average Precision and FPR95, in seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from doap.describer import Describer
from doap.functional import fpr_at_recall, pair_distances
from doap.pipeline import describe_patches
from doap.validation.retrieval import retrieve
from doap.validation.sample import PatchSample


@dataclass(frozen=True)
class ValidationScores:
    """What a describer is worth on held-out patches.

    Attributes:
        map: mean Average Precision where each patch queries all the others; ties count by their expectation.
        fpr95: false positives among the negative pairs where 95 % of the positive ones are accepted; ties count
            against the describer.
        fpr95_expected: the same with ties by their expectation; it differs for binary describers.
        seconds: that it took to describe the patches and to judge the descriptors.
    """

    map: float
    fpr95: float
    fpr95_expected: float
    seconds: float


def validate(describer: Describer, sample: PatchSample) -> ValidationScores:
    """Retrieval and verification on one sample. Memory is that of some rows of the (M, M) distances, never all."""
    begin = time.perf_counter()
    described = describe_patches(describer, sample.patches)
    precision = retrieve(described, sample.relation).precision
    pairs = torch.cat([sample.positives, sample.negatives])
    apart = pair_distances(described[pairs[:, 0]], described[pairs[:, 1]])
    is_positive = torch.arange(len(pairs)) < len(sample.positives)
    return ValidationScores(
        map=float(precision.mean()),
        fpr95=fpr_at_recall(apart, is_positive),
        fpr95_expected=fpr_at_recall(apart, is_positive, ties="expected"),
        seconds=time.perf_counter() - begin,
    )
