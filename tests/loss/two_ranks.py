"""Each rank computes the loss of its part of one batch and saves it. See test_ranks.py."""

import sys
from typing import Any

import torch
import torch.distributed as dist

from doap.loss import LOSSES
from doap.training.distributed import Ranks, joined
from doap.types import Relation


def main(problem: str, out: str) -> None:
    given = torch.load(problem, weights_only=True)
    with joined() as ranks:
        results = {
            f"{name} {distance}": own_part(given, ranks, make(distance=distance, across_ranks=True))
            for name, make in LOSSES.items()
            for distance in ("euclidean", "hamming")
        }
    torch.save(results, f"{out}.{ranks.rank}")


def own_part(given: dict[str, Any], ranks: Ranks, loss: torch.nn.Module) -> dict[str, Any]:
    """Return the mean of the loss over ranks, and the gradient of the shared network."""
    own = slice(0, given["cut"]) if ranks.first else slice(given["cut"], None)
    network = torch.nn.Linear(given["inputs"].shape[1], 8, bias=False)
    with torch.no_grad():
        network.weight.copy_(given["weight"])
    relation = Relation(given["groups"][own], given["pairs"][ranks.rank], given["clusters"][own], given["table"])
    shared = ranks.share(network)  # averages gradients over ranks in the backward pass
    value = loss(shared(given["inputs"][own]), relation)
    value.backward()
    mean = value.detach().clone()
    dist.all_reduce(mean)
    return {"value": mean / ranks.world, "gradient": network.weight.grad}


if __name__ == "__main__":
    main(*sys.argv[1:])
