"""Scores of a descriptor on a sample of patches: what training and evaluation share."""

from doap.validation.retrieval import Answers, foremost, hardest, retrieve
from doap.validation.sample import PatchSample
from doap.validation.scores import ValidationScores, validate

__all__ = ["Answers", "PatchSample", "ValidationScores", "foremost", "hardest", "retrieve", "validate"]
