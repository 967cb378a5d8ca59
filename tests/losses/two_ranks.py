"""Run under torchrun: each rank takes its part of one list and saves what it got. See test_ranks.py."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from doap.losses import LOSSES
from doap.types import Relation


def main(problem: str, out: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    given = torch.load(problem, weights_only=True)
    own = slice(0, given["cut"]) if rank == 0 else slice(given["cut"], None)
    results = {}
    for name, make in LOSSES.items():
        for distance in ("euclidean", "hamming"):
            network = torch.nn.Linear(given["inputs"].shape[1], 8, bias=False)
            with torch.no_grad():
                network.weight.copy_(given["weight"])
            parallel = DistributedDataParallel(network)
            pairs = given["pairs"][rank]
            relation = Relation(
                given["groups"][own],
                pairs,
                given["clusters"][own],
                given["table"],
            )
            value = make(distance=distance, across_ranks=True)(parallel(given["inputs"][own]), relation)
            value.backward()
            mean = value.detach().clone()
            dist.all_reduce(mean)
            results[f"{name} {distance}"] = {"value": mean / dist.get_world_size(), "gradient": network.weight.grad}
    torch.save(results, f"{out}.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
