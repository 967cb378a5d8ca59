"""Generate the tables and the figure on large collections in the documentation.

    python scripts/scale_tables.py results/scale

This reads extract.json, extract-600.json (more images), index.json and driver*.json, which the `benchmarks/scale_*.py`
write. It replaces the parts of docs/*.md that are marked with
`<!-- NAME: written by scripts/scale_tables.py -->`, and the figure docs/pictures/scale-search.png.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from generated_markdown import replace_generated, table

from doap.scale.index import plan_index
from doap.scale.ray import IMAGES_PER_PART

ROOT = Path(__file__).parents[1]
TOOL = "scripts/scale_tables.py"

# The machine and the settings that costs are estimated for.
CORES, MEMORY = 32, 128 * 2**30
STORED, INDEXED = 1000, 300
COLLECTIONS = {"10⁶": 10**6, "10⁸": 10**8, "10⁹": 10**9}
# Bytes of a stored float16 descriptor with 128 values.
DESCRIPTOR_BYTES = 2 * 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of results")
    folder = parser.parse_args().results
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}
    contents = make_tables(results)
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(replace_generated(text, TOOL, contents), encoding="utf-8")
    draw_search_time(results["index"]["indexes"], ROOT / "docs" / "pictures" / "scale-search.png")


def make_tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the generated parts of the pages by name."""
    indexes = results["index"]["indexes"]
    return {
        "extraction": extraction_table([results["extract"], results["extract-600"]]),
        "indexes": indexes_table(indexes),
        "costs": costs_table(results["extract"], indexes),
        "driver": driver_table(results),
    }


def extraction_table(runs: list[dict[str, Any]]) -> str:
    """Return the speed of each engine; only the first run has all engines."""
    first, relative = runs[0], "speed over two bare processes"
    header = ["", "images/s", "descriptors/s"]
    header += [f"relative to two bare processes, {run['images']:,} images" for run in runs]
    rows = []
    for engine in first["images/s"]:
        ratios = [f"{run[relative][engine]:.2f}" if engine in run[relative] else "" for run in runs]
        rows.append([engine, f"{first['images/s'][engine]:.1f}", f"{first['descriptors/s'][engine]:,.0f}", *ratios])
    return table(header, rows)


def indexes_table(indexes: list[dict[str, Any]]) -> str:
    """Return size, speed and recall of each index; the automatic choice is bold."""
    header = ["descriptor", "descriptors", "index", "bytes each", "build, s", "peak memory, GiB", "ms per query"]
    header += ["recall@1", "recall@1, queries with a match", "without re-ranking: ms, recall@1, with a match"]
    rows = []
    for one in indexes:
        codes = one.get("without re-ranking")
        rows.append(
            [
                one["descriptor"],
                f"{one['descriptors']:,}",
                f"**{one['kind']}**" if one["planned"] else one["kind"],
                f"{one['bytes of a descriptor']:.0f}",
                f"{one['seconds to build']:.1f}",
                f"{one['GiB to build and search']:.1f}",
                *search_figures(one),
                "{} ms, {}, {}".format(*search_figures(codes)) if codes else "",
            ]
        )
    return table(header, rows)


def search_figures(one: dict[str, Any]) -> tuple[str, str, str]:
    """Return milliseconds per query, recall, and recall of the queries with a match."""
    return f"{one['ms of a query']:.3g}", f"{one['recall@1']:.3f}", f"{one['recall@1 of queries with a match']:.3f}"


def costs_table(extract: dict[str, Any], indexes: list[dict[str, Any]]) -> str:
    """Return estimates for large collections, from the speed of one core and the largest measured index."""
    images_per_core = extract["images/s"]["two processes"] / 2 * extract["max_keypoints"] / STORED
    largest = max((one for one in indexes if one["kind"] == "ivf-pq"), key=lambda one: one["descriptors"])
    rows = []
    for name, images in COLLECTIONS.items():
        indexed = images * INDEXED
        memory = indexed * largest["bytes of a descriptor"]
        machines = math.ceil(memory / (0.75 * MEMORY))
        # Each machine searches its share of the collection.
        query = largest["ms of a query"] * comparisons(indexed / machines) / comparisons(largest["descriptors"])
        rows.append(
            [
                name,
                f"{images / images_per_core / CORES / 3600:,.0f}",
                f"{images * STORED * (DESCRIPTOR_BYTES + 28) / 1e12:,.1f}",
                f"{indexed / 1e9:,.1f}",
                f"{memory / 2**30:,.0f}",
                # The descriptors for re-ranking, with their positions in the files.
                f"{(memory + indexed * (DESCRIPTOR_BYTES + 24)) / 1e12:,.1f}",
                f"{machines:,}",
                f"{query * INDEXED / 1000:,.1f}",
            ]
        )
    header = ["images", "machine-hours to extract", "TB of features", "10⁹ indexed descriptors", "index in memory, GiB"]
    header += ["index on disk, TB", "machines", "core-seconds per query photo, on each machine"]
    return table(header, rows)


def driver_table(results: dict[str, Any]) -> str:
    """Return what the process that starts Ray does, and the number of workers that occupy it."""
    versions = {
        "Ray Data, rows of features return": "driver-features",
        "Ray Data, workers write": "driver-ray-data",
        f"tasks of up to {IMAGES_PER_PART} images": "driver",
    }
    # Images per second of one worker
    speed = max(row["images/s"] / row["workers"] for row in results["driver"]["photos"])
    rows = []
    for name, file in versions.items():
        one = results[file]
        last = max(one["runs"], key=lambda run: run["images"])
        ms = one["ms per image"] + one.get("ms per task", 0) / IMAGES_PER_PART
        workers = (1 - one["constant share"]) / (ms / 1000 * speed)
        rows.append(
            [
                name,
                f"{100 * one['constant share']:.1f} %",
                f"{ms:.2f}",
                f"{last['bytes'] / last['images']:,.0f}",
                f"{float(f'{workers:.2g}'):,.0f}",
            ]
        )
    header = ["", "constant share of a core", "ms per image", "bytes per image", "workers that occupy it"]
    return table(header, rows)


def comparisons(count: float) -> float:
    """Return the number of centroids and descriptors that one query is compared with."""
    plan = plan_index(round(count), "real", 128, "ivf-pq")
    return plan.lists + plan.probes * count / plan.lists


def draw_search_time(indexes: list[dict[str, Any]], out: Path) -> None:
    """Draw search time against index size, both on logarithmic axes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), dpi=150)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92")
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for one in indexes:
        lines.setdefault((one["descriptor"], one["kind"]), []).append((one["descriptors"], one["ms of a query"]))
    for (descriptor, kind), points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=f"{descriptor}, {kind}")
    axes.set(xscale="log", yscale="log", xlabel="descriptors in the index", ylabel="ms per query descriptor, one core")
    axes.legend(frameon=False)
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, bbox_inches="tight")


if __name__ == "__main__":
    main()
