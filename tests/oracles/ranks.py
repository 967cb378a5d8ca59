"""Run a script in two processes under `torchrun`."""

import os
import subprocess
import sys
from pathlib import Path

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run_two_ranks(script: Path, *arguments: Path) -> None:
    """Run a script in two processes with one thread each, and check that both succeed."""
    ran = subprocess.run(
        [*LAUNCH, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
