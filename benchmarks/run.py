"""Summarise a training run: recipe, validation curve, and the scores of SIFT and RootSIFT on the same patches.

doap train recipes/photos-128.toml --data TRAIN --validation VALIDATION --budget 20m --out RUN
python benchmarks/run.py RUN --out results/photos-128.json
"""

from __future__ import annotations

import statistics
from pathlib import Path

import record

from doap.training.log import read_log


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("run", type=Path, help="folder of the run")
    options = parser.parse_args()
    log = read_log(options.run / "log.jsonl")
    start = log[0]
    curve = [
        {key: event[key] for key in ("step", "seconds", "map", "fpr95")}
        for event in log
        if event["kind"] == "validation"
    ]
    config = {section: fields for section, fields in start["config"].items() if section != "data"}
    config["data"] = {key: value for key, value in start["config"]["data"].items() if not str(value).startswith("/")}
    figures = {
        "config": config,
        "threads": start["threads"],
        "precision": start["precision"],
        "allocator": start["allocator"],
        "patches_per_second": statistics.median(e["patches_per_second"] for e in log if e["kind"] == "train"),
        "baselines": start["baselines"],
        "validation": curve,
        "best": max(curve, key=lambda point: point["map"]),
    }
    print(figures["baselines"], figures["best"])
    record.write(options.out, start["config"]["run"]["seed"], figures)


if __name__ == "__main__":
    main()
