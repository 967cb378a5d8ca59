"""Compare time and memory of the listwise loss with a matrix product, and with other implementations.

    python benchmarks/loss.py --out results/loss.json

Times are forward + backward. All variants are timed in turn; a ratio is the median over rounds of the time divided by
the time of the matrix product in the same round. Peak memory is the increase over the state before the call.
"""

from __future__ import annotations

import ctypes
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import record
import torch
from pytorch_metric_learning.losses import FastAPLoss
from torch import Tensor
from torch.nn.functional import normalize

from doap.loss import HardestTriplet, ListwiseAP

Step = Callable[[], None]
BARE = "bare x @ x.T, D = 128"
FEW = 3
"""Rounds of a variant that takes seconds."""


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096], help="batch sizes M")
    parser.add_argument("--largest", type=int, default=16384, help="batch size whose memory is measured")
    parser.add_argument("--rounds", type=int, default=15, help="number of timed repetitions")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    table = [row for size in options.sizes for group in (2, 16) for row in compare(size, group, options.rounds)]
    descriptors, groups = batch(options.largest, 2)
    peak = peak_of(loss_step(ListwiseAP.paper(), descriptors, groups)) / 2**20
    figures = {"table": table, "largest": {"M": options.largest, "peak_mib": round(peak, 1)}}
    record.write(options.out, options.seed, figures)


def batch(size: int, group: int) -> tuple[Tensor, Tensor]:
    """Return random unit vectors (size, 128) that need gradients, and the group of each (size,)."""
    return normalize(torch.randn(size, 128)).requires_grad_(), torch.arange(size) // group


def compare(size: int, group: int, rounds: int) -> list[dict[str, Any]]:
    """Return one row per variant, for batches of `size` in groups of `group`."""
    descriptors, groups = batch(size, group)
    incoming, bits = torch.randn(size, size), torch.randn(size, 256).requires_grad_()
    ways: dict[str, Step] = {
        BARE: lambda: backward(descriptors, descriptors @ descriptors.T, incoming),
        "doap, 25 bins": loss_step(ListwiseAP.paper(), descriptors, groups),
        "doap, 256 bits": loss_step(ListwiseAP("hamming"), bits, groups),
        "hardest triplet": loss_step(HardestTriplet(), descriptors, groups),
        "FastAPLoss (pytorch-metric-learning), 25 bins": loss_step(FastAPLoss(num_bins=25), descriptors, groups),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, rounds):
        for name, step in ways.items():
            if name.startswith("FastAP") and number >= FEW:
                continue
            start = time.perf_counter()
            step()
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    rows: list[dict[str, Any]] = []
    for name, step in ways.items():
        ratios = [a / b for a, b in zip(seconds[name], seconds[BARE], strict=False)]
        row = {"M": size, "group": group, "way": name, "milliseconds": 1e3 * statistics.median(seconds[name])}
        rows.append(row | {"times_bare": statistics.median(ratios), "peak_mib": peak_of(step) / 2**20})
        print(rows[-1], flush=True)
    return rows


def loss_step(loss: Callable[[Tensor, Tensor], Tensor], descriptors: Tensor, groups: Tensor) -> Step:
    return lambda: backward(descriptors, loss(descriptors, groups))


def backward(leaf: Tensor, value: Tensor, incoming: Tensor | None = None) -> None:
    leaf.grad = None
    value.backward(incoming)


def peak_of(step: Step) -> int:
    """Return the increase of resident memory during a call, in bytes (Linux)."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    step()
    return max(0, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    main()
