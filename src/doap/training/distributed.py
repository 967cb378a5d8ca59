"""One process or many under `torchrun`: who am I, and how the network is shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

# Before there is a group: its functions keep for good the one there is when they are imported, which otherwise
# DistributedDataParallel does. A group that is kept does not end its threads, and Python aborts if one of them frees a
# tensor while the process ends.
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Ranks:
    """This process among those of a run."""

    rank: int
    world: int
    device: torch.device

    @property
    def several(self) -> bool:
        return self.world > 1

    @property
    def first(self) -> bool:
        """Whether this is the process that validates, logs and writes."""
        return self.rank == 0

    def share(self, network: nn.Module) -> nn.Module:
        """The network, or its DistributedDataParallel: gradients are averaged over ranks after each backward."""
        if not self.several:
            return network
        return DistributedDataParallel(network, [self.device.index] if self.device.type == "cuda" else None)

    def agree(self, number: float) -> float:
        """The first rank's number on all ranks: clocks differ, and all must stop at the same step."""
        if not self.several:
            return number
        shared = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared)

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.several:
            dist.barrier()


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the process group that `torchrun` speaks of in the environment; alone without it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if world == 1:
        yield Ranks(0, 1, device)
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Ranks(rank, world, device)
    finally:
        dist.destroy_process_group()
