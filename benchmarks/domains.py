"""Does fine-tuning on one's own photos pay? Five domains, and the gain on other photos against minutes of training.

    recipes/scenes.sh DATA evaluation SCENES
    python benchmarks/domains.py DATA/photos SCENES WORK --out results/domains.json

The photos of a domain are divided in the order in which they were taken. The first half is what a user has:

    doap colmap FIRST --descriptor NAME --out first.db              and COLMAP's mapper
    doap data from-colmap MODEL FIRST --database first.db --out first.patches
    doap train recipes/finetune.toml --data first.patches --init NAME --budget MINUTES --out RUN

The second half is for the measurement, with the weights before and after:

    inliers           verified inliers per overlapping pair of up to 20 photos (`doap compare`), and the difference
                      between after and before with its 95 % interval over photos
    reconstruction    `doap colmap` and COLMAP's mapper, means over two seeds
    validation pose   AUC@10 on fountain and taj_mahal, to see what is forgotten

Training has one thread. A domain should be new to the weights: doap-fast has seen none of them, doap-128 all but
`seneca` and `retina`. The scans of `retina` are made from one public picture, the left half for the first set and the
right half for the second one, because openly licensed microscopy of one object from several sides was not available.

Every finished row is stored at once: rerun the same command to continue.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import record
import skimage.data
from numpy.typing import NDArray

import doap
from doap._support.random_streams import stream
from doap.evaluation.mapping import map_database, summarise_models
from doap.evaluation.report.table import difference_interval
from doap.images import list_images

RECIPE = Path(__file__).parents[1] / "recipes" / "finetune.toml"
DOMAINS = {
    "tarak_farms": "aerial photos of fields",
    "seneca": "near-infrared aerial photos",
    "dioscuri": "statues in a museum",
    "vineyard": "plants, from the ground",
    "retina": "scans of a fundus photo",
}
UNSEEN_BY_ALL = ("seneca", "retina")
MINUTES = (10, 30, 60)
MODELS = 2
"""Number of models of each database, with different seeds."""
VALIDATION = "fountain,taj_mahal"
SCANS, SCAN_SIDE = 24, 420
"""Number of scans of each half, and their side in pixels."""


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of the photos, one folder per domain")
    parser.add_argument("scenes", type=Path, help="frozen scenes of the evaluation")
    parser.add_argument("work", type=Path, help="folder of databases, patch sets and runs")
    parser.add_argument("--domains", nargs="*", default=list(DOMAINS), choices=list(DOMAINS))
    parser.add_argument(
        "--budget", type=float, default=140, help="start no training that would end after so many minutes"
    )
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out and options.out.exists() else []
    done = {(row["domain"], row["descriptor"], row["minutes"]) for row in rows}
    end = time.monotonic() + 60 * options.budget
    for domain, descriptor, minutes in plan(options.domains):
        if (domain, descriptor, minutes) in done or time.monotonic() + 60 * minutes > end:
            continue
        rows.append(measure(domain, descriptor, minutes, options))
        print({name: value for name, value in rows[-1].items() if name != "versions"}, flush=True)
        record.write(options.out, options.seed, {"domains": DOMAINS, "rows": rows})


def plan(domains: list[str]) -> Iterator[tuple[str, str, int]]:
    """Yield domain, descriptor and minutes of all rows; all domains have one duration before any has the next."""
    for descriptor in ("doap-fast", "doap-128"):
        for minutes in (0, *MINUTES):
            for domain in domains:
                if descriptor == "doap-fast" or domain in UNSEEN_BY_ALL:
                    yield domain, descriptor, minutes


def measure(domain: str, name: str, minutes: int, options: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune a descriptor, unless the minutes are 0, and measure it."""
    work: Path = options.work / domain / name
    work.mkdir(parents=True, exist_ok=True)
    first, second = divide(options.photos / domain, options.work / domain)
    row: dict[str, Any] = {"domain": domain, "descriptor": name, "minutes": minutes}
    weights = name
    if minutes:
        patches = build_patches(first, name, work)
        run = work / f"{minutes} minutes"
        command = [
            "train",
            RECIPE,
            "--data",
            patches,
            "--init",
            name,
            "--budget",
            f"{minutes}m",
            "--out",
            run,
            "--json",
        ]
        trained = json.loads(doap_command(*command))
        row |= {key: trained[key] for key in ("steps", "best_step", "initial_map", "map")}
        weights = str(run / "best.safetensors")
    descriptors = {"after": weights, "before": name} if minutes else {"before": name, "rootsift": "rootsift"}
    return {
        **row,
        "inliers": compare_inliers(second, descriptors, work / f"{minutes} minutes, pairs", options.seed),
        "reconstruction": reconstruct(second, weights, options.seed),
        "validation pose": validation_pose(weights, options.scenes, work / "results"),
    }


def divide(photos: Path, work: Path) -> tuple[Path, Path]:
    """Return folders with the first and the second half of the photos of a domain."""
    halves = work / "first", work / "second"
    for number, half in enumerate(halves):
        if half.exists():
            continue
        half.mkdir(parents=True)
        if photos.name == "retina":
            write_scans(skimage.data.retina(), number, half)
            continue
        paths = list_images(photos)
        middle = len(paths) // 2
        for path in (paths[:middle], paths[middle:])[number]:
            (half / path.name).symlink_to(path.resolve())
    return halves


def write_scans(picture: NDArray[np.uint8], number: int, folder: Path) -> None:
    """Write photos of one half of a picture, as a camera sees it from positions in a circle above it."""
    generator, width = stream(0, "scans", number), picture.shape[1] // 2
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)[:, number * width : (number + 1) * width]
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    for index in range(SCANS):
        centre = generator.uniform([0.3 * width, 0.25 * len(grey)], [0.7 * width, 0.75 * len(grey)])
        angle, reach = generator.uniform(0, 2 * np.pi), generator.uniform(130, 190)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        # Two tilts make the far side of the square shorter.
        tilt = 1 + corners @ generator.uniform(-0.25, 0.25, 2)
        seen = centre + reach * (corners * tilt[:, None]) @ turn.T
        target = (corners + 1) / 2 * (SCAN_SIDE - 1)
        homography = cv2.getPerspectiveTransform(seen.astype(np.float32), target.astype(np.float32))
        scan = cv2.warpPerspective(grey, homography, (SCAN_SIDE, SCAN_SIDE), flags=cv2.INTER_AREA)
        noisy = generator.uniform(0.7, 1.3) * scan + generator.normal(0, 3, scan.shape)
        cv2.imwrite(str(folder / f"{index:03}.png"), noisy.clip(0, 255).astype(np.uint8))


def build_patches(photos: Path, name: str, work: Path) -> Path:
    """Reconstruct photos with a descriptor, and build a patch set from the largest model."""
    patches, model = work / "first.patches", work / "first"
    if not patches.exists():
        doap_command("colmap", photos, "--descriptor", name, "--out", work / "first.db", "--json")
        if not model.exists():
            models = map_database(work / "first.db", photos, work / "first models", 0)
            model.mkdir()
            models[0].write(model)
        database = ["--database", work / "first.db"]
        doap_command("data", "from-colmap", model, photos, *database, "--out", patches, "--json")
    return patches


def doap_command(*arguments: str | Path) -> str:
    """Run a command of doap with one thread; return what it prints."""
    command = [sys.executable, "-m", "doap", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def compare_inliers(photos: Path, descriptors: dict[str, str], out: Path, seed: int) -> dict[str, Any]:
    """Return the mean number of inliers of two descriptors in overlapping pairs, and their difference."""
    first, second = descriptors.values()
    found = doap.compare(photos, out, descriptor=first, baselines=[second], reconstruction=False, seed=seed)
    results = found.results["pairs of photos that overlap"]
    if not results:
        return {"note": found.notes["pairs of photos that overlap"]}
    ours, theirs = (result.headline.total for result in results)
    means = {label: one.value for label, one in zip(descriptors, (ours, theirs), strict=True)}
    interval = difference_interval(ours, theirs)
    return {
        **means,
        "difference": ours.value - theirs.value,
        "interval": interval,
        "note": next(iter(found.notes.values())),
    }


def reconstruct(photos: Path, weights: str, seed: int) -> dict[str, float]:
    """Return the means of COLMAP's figures over several seeds."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "database.db"
        doap.write_colmap(photos, database, weights)
        numbers = range(seed, seed + MODELS)
        models = [summarise_models(map_database(database, photos, Path(folder) / str(one), one)) for one in numbers]
    figures = ("registered", "points", "track_length", "reprojection_error")
    return {"photos": len(list_images(photos))} | {
        name: statistics.fmean(getattr(one, name) or 0.0 for one in models) for name in figures
    }


def validation_pose(weights: str, scenes: Path, out: Path) -> float:
    """Return the pose AUC@10 on the validation scenes at the descriptor's own ratio, in per cent."""
    descriptor = doap.Descriptor.load(weights, precision="float32")
    settings = {"test": VALIDATION, "ratio": descriptor.ratio}
    results = doap.evaluate({"one": descriptor}, "pose", scenes, out, settings=settings).results
    return 100 * results["one"].headline.total.value


if __name__ == "__main__":
    main()
