"""Write the figures of a benchmark to a JSON file, with command, versions, seed, date and commit."""

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

from doap._support.opencv import loaded_wheel
from doap.evaluation.run import source_commit

LIBRARIES = (
    "torch",
    "numpy",
    "faiss-cpu",
    "milvus",
    "pymilvus",
    "pycolmap",
    "pyarrow",
    "pytorch-metric-learning",
)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers")
    return parser


def write(out: Path | None, seed: int, figures: dict[str, Any]) -> None:
    """Write the figures and the environment they were measured in; do nothing without `out`."""
    if out is None:
        return
    installed = {}
    for name in (*LIBRARIES, loaded_wheel()):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    report = {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_strip_folder, sys.argv[1:])]),
        "date": datetime.date.today().isoformat(),
        "commit": source_commit(),
        "seed": seed,
        "versions": {"python": platform.python_version(), **installed},
        "machine": {"processor": _processor(), "cores": os.cpu_count()},
        **figures,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def _strip_folder(argument: str) -> str:
    """Return only the name of an absolute path: results must not depend on the folders of a machine."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
