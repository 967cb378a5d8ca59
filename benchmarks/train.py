"""Compare the training loop with a minimal loop, with and without a tuned allocator.

    python benchmarks/train.py SET --out results/train.json

The bare loop is forward, loss, backward and step on random tensors of the same size, with the same network, precision
and allocator. Both loops run in turn, each in its own process, because the allocator must be set before torch is
imported.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record

STEPS = 40


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("set", type=Path, help="patch set to train on")
    parser.add_argument("--rounds", type=int, default=3, help="number of repetitions")
    parser.add_argument("--only", choices=["bare"], help="measure the bare loop in this process")
    parser.add_argument("--allocator", default="tuned", help="allocator of --only bare")
    options = parser.parse_args()
    if options.only:
        print(bare(options.allocator))
        return
    speeds: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for allocator in ("tuned", "default"):
            speeds.setdefault(f"loop, {allocator}", []).append(loop(options.set, allocator, options.seed))
            ran = subprocess.run(
                [sys.executable, __file__, str(options.set), "--only", "bare", "--allocator", allocator],
                capture_output=True,
                text=True,
                check=True,
            )
            speeds.setdefault(f"bare, {allocator}", []).append(float(ran.stdout))
            print({name: [round(speed) for speed in one] for name, one in speeds.items()}, flush=True)
    medians = {name: statistics.median(one) for name, one in speeds.items()}
    ratios = {
        "loop over bare, tuned": medians["loop, tuned"] / medians["bare, tuned"],
        "loop over bare, default": medians["loop, default"] / medians["bare, default"],
        "tuned over default, loop": medians["loop, tuned"] / medians["loop, default"],
    }
    print({name: round(ratio, 3) for name, ratio in ratios.items()})
    record.write(options.out, options.seed, {"patches_per_second": speeds, "ratios": ratios})


def loop(patches: Path, allocator: str, seed: int) -> float:
    """Return the patches per second of `doap train` from its log, without the first steps."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        recipe.write_text(
            f"[data]\nbatch_size = 1024\n[schedule]\nsteps = {STEPS}\n"
            f"[run]\nlog_every = 10\nvalidate_every = {STEPS}\ncheckpoint_every = {STEPS}\nseed = {seed}\n"
        )
        command = ["doap", "train", str(recipe), "--data", str(patches), "--out", f"{folder}/run"]
        subprocess.run([*command, "--allocator", allocator], check=True, capture_output=True)
        lines = [json.loads(line) for line in (Path(folder) / "run" / "log.jsonl").read_text().splitlines()]
    return statistics.median(line["patches_per_second"] for line in lines[2:] if line["kind"] == "train")


def bare(allocator: str) -> float:
    """Return the patches per second of network and loss without the training loop."""
    from doap.processes import tune_allocator

    if allocator == "tuned":
        tune_allocator()
    import torch

    from doap.descriptor import Descriptor
    from doap.device import resolve_precision
    from doap.loss import ListwiseAP
    from doap.training.step import full_step
    from doap.types import Relation

    precision = resolve_precision("auto", torch.device("cpu"), "bfloat16")
    descriptor = Descriptor.build().to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(descriptor.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    patches = torch.rand(1024, 1, 32, 32).contiguous(memory_format=torch.channels_last)
    relation, loss = Relation(torch.arange(1024) // 2), ListwiseAP()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        full_step(descriptor, loss, patches, relation, precision)
        optimiser.step()
        times.append(time.perf_counter() - start)
    return 1024 / statistics.median(times[STEPS // 4 :])


if __name__ == "__main__":
    main()
