"""How a benchmark leaves its figures: one JSON with command, versions, seed and date."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

LIBRARIES = (
    "torch",
    "numpy",
    "opencv-contrib-python-headless",
    "faiss-cpu",
    "pycolmap",
    "pyarrow",
    "pytorch-metric-learning",
)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, help="where to write the JSON")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def write(out: Path | None, seed: int, figures: dict[str, Any]) -> None:
    """Write the figures and what they were measured with; nothing without `out`."""
    if out is None:
        return
    installed = {}
    for name in LIBRARIES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    report = {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_name, sys.argv[1:])]),
        "date": datetime.date.today().isoformat(),
        "seed": seed,
        "versions": {"python": platform.python_version(), **installed},
        "machine": {"processor": _processor(), "cores": os.cpu_count()},
        **figures,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def _name(argument: str) -> str:
    """Where a folder lay on the machine that measured is nobody's concern; its name is."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
