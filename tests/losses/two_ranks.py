"""Each rank computes the loss of its part of one batch and saves it. See test_ranks.py."""

import sys
from typing import Any

import torch
import torch.distributed as dist

from doap.losses import LOSSES, ListwiseAP
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
        results["memory"] = own_part(given, ranks, ListwiseAP(memory=70, across_ranks=True), earlier=2)
    torch.save(results, f"{out}.{ranks.rank}")


def own_part(given: dict[str, Any], ranks: Ranks, loss: torch.nn.Module, earlier: int = 0) -> dict[str, Any]:
    """Return the mean of the loss over ranks, and the gradient of the shared network.

    The loss remembers the same batch, `earlier` times.
    """
    own = slice(0, given["cut"]) if ranks.first else slice(given["cut"], None)
    network = torch.nn.Linear(given["inputs"].shape[1], 8, bias=False)
    with torch.no_grad():
        network.weight.copy_(given["weight"])
    relation = Relation(given["groups"][own], given["pairs"][ranks.rank], given["clusters"][own], given["table"])
    with torch.no_grad():
        for _ in range(earlier):
            loss(network(given["inputs"][own]), relation)
    if earlier:
        groups, clusters = (
            torch.cat([given[name][own], given[name].repeat(earlier)[-loss.settings.memory :]])
            for name in ("groups", "clusters")
        )
        relation = Relation(groups, given["pairs"][ranks.rank], clusters, given["table"])
    shared = ranks.share(network)  # averages gradients over ranks in the backward pass
    value = loss(shared(given["inputs"][own]), relation)
    value.backward()
    mean = value.detach().clone()
    dist.all_reduce(mean)
    return {"value": mean / ranks.world, "gradient": network.weight.grad}


if __name__ == "__main__":
    main(*sys.argv[1:])
