"""Run a script in two processes that form a process group."""

import socket
from pathlib import Path

from oracles.forked import Forked
from oracles.interpreter import run_python

LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run_with_torchrun(script: Path, *arguments: Path) -> None:
    """Run a script in two processes with one thread each under `torchrun`, and check that both succeed."""
    run_python(*LAUNCH, script, *arguments, OMP_NUM_THREADS="1")


def run_two_ranks(code: str, *arguments: Path) -> None:
    """Run a program in two forks with one thread each and the variables of `torchrun`; check that both succeed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    code = "import torch\ntorch.set_num_threads(1)\n" + code
    ranks = [Forked(code, *arguments, variables={**group, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]
    for ran in [rank.wait() for rank in ranks]:
        assert ran.returncode == 0, ran.stderr
