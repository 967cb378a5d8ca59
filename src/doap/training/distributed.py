"""Ranks: one process, or several under `torchrun`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

# Imported before there is a process group: functions of this module keep the group that exists at their import for
# good, and DistributedDataParallel would import it later. A group that is kept does not end its threads, and Python
# aborts if one of them frees a tensor at exit.
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from doap._support.device import resolve_device


@dataclass(frozen=True)
class Ranks:
    """This process among all processes of a run."""

    rank: int
    world: int
    device: torch.device

    @property
    def several(self) -> bool:
        return self.world > 1

    @property
    def first(self) -> bool:
        """Whether this process validates, logs and writes files."""
        return self.rank == 0

    def share(self, network: nn.Module) -> nn.Module:
        """Return the network, with several ranks in DistributedDataParallel, which averages gradients over ranks."""
        if not self.several:
            return network
        return DistributedDataParallel(network, [self.device.index] if self.device.type == "cuda" else None)

    def agree(self, number: float) -> float:
        """Return the first rank's number on all ranks: clocks differ, and all ranks must stop at the same step."""
        if not self.several:
            return number
        shared = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared)

    def wait(self) -> None:
        """Wait until all ranks are here."""
        if self.several:
            dist.barrier()


@contextmanager
def joined(device: str | torch.device = "auto") -> Iterator[Ranks]:
    """Join the process group that `torchrun` describes in the environment; without it, there is one rank.

    Args:
        device: Device to compute on. Each rank uses its own GPU, so `cuda` stands for the GPU of the local rank.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    resolved = resolve_device(device)
    if world == 1:
        yield Ranks(0, 1, resolved)
        return
    if resolved.type == "cuda":
        resolved = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if resolved.type == "cuda" else "gloo")
    try:
        yield Ranks(rank, world, resolved)
    finally:
        dist.destroy_process_group()
