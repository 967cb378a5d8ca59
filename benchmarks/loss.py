"""Compare time and memory of the listwise loss with a matrix product, and with other implementations.

    python benchmarks/loss.py --out results/loss.json

Times are forward + backward. All variants are timed in turn; a ratio is the median over rounds of the time divided by
the time of the matrix product in the same round. Peak memory is the increase over the state before the call.
`--allocator tuned` raises glibc's mmap and trim thresholds, so that new pages cost the matrix product nothing either;
`default` leaves the allocator of `python` unchanged.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import record
import torch
from pytorch_metric_learning.losses import FastAPLoss
from torch import Tensor
from torch.nn.functional import normalize

from doap.loss import HardestTriplet, ListwiseAP

Step = Callable[[], None]
TUNED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 31)}
GIB = 2**30


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--allocator", choices=["default", "tuned"], default="default", help="malloc thresholds")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096], help="batch sizes M")
    parser.add_argument("--rounds", type=int, default=15, help="number of timed repetitions")
    options = parser.parse_args()
    if options.allocator == "tuned" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **TUNED})
    torch.manual_seed(options.seed)

    table = []
    for size in options.sizes:
        for group in (2, 16):
            table += compare(size, group, options.rounds)
    print()
    growth = grow([1024, 2048, 4096, 8192, 16384])
    figures = {"allocator": options.allocator, "table": table, "growth": growth}
    record.write(options.out, options.seed, figures)


def compare(size: int, group: int, rounds: int) -> list[dict[str, object]]:
    """Return one row per variant, for batches of `size` in groups of `group`."""
    real = normalize(torch.randn(size, 128)).requires_grad_()
    wide = torch.randn(size, 256).requires_grad_()
    groups = torch.arange(size) // group
    incoming = torch.randn(size, size)
    ways: dict[str, tuple[Step, float]] = {
        "bare x @ x.T, D = 128": (lambda: backward(real, real @ real.T, incoming), 0),
        "doap, 25 bins": (loss_step(ListwiseAP.paper(), real, groups), 0),
        "doap, 25 bins, chunk = 128": (loss_step(ListwiseAP.paper(chunk=128), real, groups), 0),
        "doap, 25 bins, one chunk": (loss_step(ListwiseAP.paper(chunk=size), real, groups), 0),
        "bare x @ x.T, D = 256": (lambda: backward(wide, wide @ wide.T, incoming), 0),
        "doap, 25 bins, D = 256": (loss_step(ListwiseAP("hamming", bins=25), wide, groups), 0),
        "doap, 256 bits": (loss_step(ListwiseAP("hamming"), wide, groups), 0),
        "hardest triplet": (loss_step(HardestTriplet(), real, groups), 0),
        "dense M×M×b, 25 bins": (loss_step(dense_listwise, real, groups), 4 * 6 * 26 * size**2),
        "FastAPLoss (pytorch-metric-learning), 25 bins": (
            loss_step(FastAPLoss(num_bins=25), real, groups),
            4 * 6 * 26 * size**2,
        ),
    }
    runnable = {name: step for name, (step, needs) in ways.items() if needs < 14 * GIB}
    seconds: dict[str, list[float]] = {name: [] for name in runnable}
    for number in range(-1, rounds):
        for name, step in runnable.items():
            slow = name.startswith(("dense", "FastAP"))
            if slow and number > max(2, rounds // 5):
                continue
            start = time.perf_counter()
            step()
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    rows = []
    for name in ways:
        row: dict[str, object] = {"M": size, "group": group, "way": name}
        if name in runnable:
            ratios = [a / b for a, b in zip(seconds[name], seconds["bare x @ x.T, D = 128"], strict=False)]
            row["milliseconds"] = round(1e3 * statistics.median(seconds[name]), 2)
            row["times_bare"] = round(statistics.median(ratios), 2)
            row["peak_mib"] = round(peak_of(runnable[name]) / 2**20, 1)
        else:
            row["not_run"] = f"about {ways[name][1] / GIB:.0f} GiB"
        rows.append(row)
        print(
            " | ".join(f"{value!s:>8}" if i != 2 else f"{value:46}" for i, value in enumerate(row.values())), flush=True
        )
    return rows


def grow(sizes: list[int]) -> dict[str, object]:
    """Return time and memory of doap's loss by batch size, and the exponent of M that fits the time from M = 2,048."""
    rows = []
    for size in sizes:
        step = loss_step(
            ListwiseAP.paper(), normalize(torch.randn(size, 128)).requires_grad_(), torch.arange(size) // 2
        )
        step()
        times = []
        for _ in range(3 if size > 8000 else 7):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        rows.append(
            {"M": size, "milliseconds": round(1e3 * min(times), 2), "peak_mib": round(peak_of(step) / 2**20, 1)}
        )
        print(rows[-1], flush=True)
    fit = [(math.log(row["M"]), math.log(row["milliseconds"])) for row in rows if row["M"] >= 2048]
    mean_x, mean_y = (statistics.mean(axis) for axis in zip(*fit, strict=True))
    exponent = sum((x - mean_x) * (y - mean_y) for x, y in fit) / sum((x - mean_x) ** 2 for x, _ in fit)
    print(f"time grows as M^{exponent:.2f}")
    return {"rows": rows, "exponent": round(exponent, 3)}


def loss_step(loss: Callable[[Tensor, Tensor], Tensor], descriptors: Tensor, groups: Tensor) -> Step:
    return lambda: backward(descriptors, loss(descriptors, groups))


def backward(leaf: Tensor, value: Tensor, incoming: Tensor | None = None) -> None:
    leaf.grad = None
    value.backward(incoming)


def dense_listwise(descriptors: Tensor, groups: Tensor, bins: int = 25) -> Tensor:
    """Compute the loss with a dense (M, M, K) tensor and autograd."""
    size = len(descriptors)
    distances = (2 - 2 * descriptors @ descriptors.T).clamp(min=1e-12).sqrt()
    centres = torch.arange(bins + 1)
    kernel = (1 - (distances[:, :, None] * (bins / 2) - centres).abs()).clamp(min=0)
    other = ~torch.eye(size, dtype=torch.bool)
    positive = (groups[:, None] == groups) & other
    positives = torch.einsum("qnk,qn->qk", kernel, positive.float())
    total = torch.einsum("qnk,qn->qk", kernel, other.float())
    precision = (2 * positives.cumsum(1) - positives + 1) / (2 * total.cumsum(1) - total + 1)
    return 1 - ((positives * precision).sum(1) / positive.sum(1)).mean()


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
