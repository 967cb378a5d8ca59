"""Scores of a descriptor on a sample of patches, shared by training and evaluation."""

from doap.evaluation.validation.retrieval import RetrievalResult, hardest, retrieve
from doap.evaluation.validation.sample import PatchSample
from doap.evaluation.validation.scores import ValidationScores, validate

__all__ = [
    "PatchSample",
    "RetrievalResult",
    "ValidationScores",
    "hardest",
    "retrieve",
    "validate",
]
