"""The definition: the relaxed Average Precision that training maximises. `kernel.py` computes it faster."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

APForm = Literal["simplified", "fastap"]


def soft_histogram(distances: Tensor, centres: Tensor, counted: Tensor) -> Tensor:
    """Return counts (Q, K) of distances (Q, N), each shared between its two nearest bin centres in proportion.

    >>> import torch
    >>> soft_histogram(torch.tensor([[0.0, 0.25, 1.0]]), torch.tensor([0.0, 1.0, 2.0]), torch.ones(1, 3).bool())
    tensor([[1.7500, 1.2500, 0.0000]])
    """
    position = (distances - centres[0]) / (centres[1] - centres[0])
    left = position.detach().long().clamp(0, len(centres) - 2)
    share = position - left
    counts = distances.new_zeros(len(distances), len(centres))
    return counts.scatter_add(1, left, (1 - share) * counted).scatter_add(1, left + 1, share * counted)


def relaxed_average_precision(
    distances: Tensor, positive: Tensor, distractor: Tensor, centres: Tensor, form: APForm = "simplified"
) -> Tensor:
    """Return the differentiable Average Precision (Q,) of each query; 0 for a query without positives.

    Let c⁺ and c be the numbers of positives and of all items in a bin, C⁺ and C their sums up to and including this
    bin, C⁺₋₁ and C₋₁ those without it, and N⁺ the number of positives.

        simplified (DOAP)    AP = (1/N⁺) Σ c⁺ (C⁺₋₁ + C⁺ + 1) / (C₋₁ + C + 1)
        fastap (FastAP)      AP = (1/N⁺) Σ c⁺ C⁺ / C

    Args:
        distances: (Q, N), within the range of `centres`.
        positive, distractor: (Q, N) bool. Items that are neither, such as the query itself, do not count.
        centres: (K,) evenly spaced bin centres, increasing, K ≥ 2.
        form: Relaxation of AP.
    """
    positives = soft_histogram(distances, centres, positive)
    total = positives + soft_histogram(distances, centres, distractor)
    positives_upto, upto = positives.cumsum(1), total.cumsum(1)
    if form == "simplified":
        precision = (2 * positives_upto - positives + 1) / (2 * upto - total + 1)
    else:
        # No positive precedes the first item, so any denominator except 0 is correct there.
        precision = positives_upto / upto.where(upto > 0, 1)
    return (positives * precision).sum(1) / positive.sum(1).clamp(min=1)
