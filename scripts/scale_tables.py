"""Generate the tables on large collections in the documentation.

    python scripts/scale_tables.py results/scale

This reads extract.json, extract-600.json (more images), index.json and milvus.json, which `benchmarks/scale_*.py` and
`benchmarks/milvus.py` write. It replaces the parts of docs/*.md that are marked with
`<!-- NAME: written by scripts/scale_tables.py -->`.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from generated_markdown import replace_generated, table

from doap.collection.index import choose_lists

ROOT = Path(__file__).parents[1]
TOOL = "scripts/scale_tables.py"

# The machine and the settings that costs are estimated for.
CORES, MEMORY = 32, 128 * 2**30
PER_IMAGE = 1000
COLLECTIONS = {"10⁴": 10**4, "10⁶": 10**6, "10⁸": 10**8, "10¹⁰": 10**10}
FAISS_LIMIT = 10**8
# Smaller indexes are only in the figure.
DETAILED = 10**6
# A code and its id.
MILVUS_BYTES = 32 + 8
MILVUS_STEPS = ("Milvus", "Milvus, until all rows are in its index")
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


def make_tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the generated parts of the pages by name."""
    indexes = results["index"]["indexes"]
    return {
        "extraction": extraction_table([results["extract"], results["extract-600"]]),
        "indexes": indexes_table(indexes),
        "costs": costs_table(results["extract"], indexes, results["milvus"]),
        "milvus": milvus_table(results["milvus"]),
    }


def extraction_table(runs: list[dict[str, Any]]) -> str:
    """Return the speed of each engine; only the first run has all engines."""
    first, relative = runs[0], "speed over two bare processes"
    header = ["", "images/s", "descriptors/s"]
    header += [f"relative to two bare processes, {run['images']:,} images" for run in runs]
    rows = []
    # The Ray engine of that time used Ray Data; extract-ray.json has the present one.
    for engine in (one for one in first["images/s"] if one != "ray"):
        ratios = [f"{run[relative][engine]:.2f}" if engine in run[relative] else "" for run in runs]
        rows.append([engine, f"{first['images/s'][engine]:.1f}", f"{first['descriptors/s'][engine]:,.0f}", *ratios])
    return table(header, rows)


def indexes_table(indexes: list[dict[str, Any]]) -> str:
    """Return size, speed and recall of each index."""
    header = ["descriptor", "descriptors", "index", "bytes each", "build, s", "peak memory, GiB", "ms per query"]
    header += ["recall@1", "recall@1, queries with a match"]
    indexes = [one for one in indexes if one["descriptors"] >= DETAILED]
    rows = []
    for one in indexes:
        rows.append(
            [
                one["descriptor"],
                f"{one['descriptors']:,}",
                one["kind"],
                f"{one['bytes of a descriptor']:.0f}",
                f"{one['seconds to build']:.1f}",
                f"{one['GiB to build and search']:.1f}",
                *search_figures(one),
            ]
        )
    return table(header, rows)


def search_figures(one: dict[str, Any]) -> tuple[str, str, str]:
    """Return milliseconds per query, recall, and recall of the queries with a match."""
    return f"{one['ms of a query']:.3g}", f"{one['recall@1']:.3f}", f"{one['recall@1 of queries with a match']:.3f}"


def costs_table(extract: dict[str, Any], indexes: list[dict[str, Any]], milvus: dict[str, Any]) -> str:
    """Return estimates for collections of any size, from the speed of one core and the largest measured indexes."""
    images_per_core = extract["images/s"]["two processes"] / 2 * extract["max_keypoints"] / PER_IMAGE
    rows = []
    for name, count in COLLECTIONS.items():
        images = count / PER_IMAGE
        if count <= FAISS_LIMIT:
            kind = "ivf" if choose_lists(count, "real", None) else "flat"
            known = [one for one in indexes if (one["descriptor"], one["kind"]) == ("doap-128", kind)]
            measured = max(known, key=lambda one: min(one["descriptors"], count))
            size, hours = measured["bytes of a descriptor"], measured["seconds to build"] / 3600
            # Most of the time, descriptors are compared with list centres, whose number grows with the square root.
            hours *= (count / measured["descriptors"]) ** 1.5
            engine = f"FAISS, {kind}, doap-128"
        else:
            size, hours = MILVUS_BYTES, sum(milvus["seconds to build"][step] for step in MILVUS_STEPS) / 3600
            hours *= count / milvus["descriptors"]
            engine = "Milvus, ivf, doap-256bit"
        machines = math.ceil(count * size / (0.75 * MEMORY))
        figures = [images / images_per_core / CORES / 24 / 3600, count * (DESCRIPTOR_BYTES + 28) / 1e12]
        figures += [count * size / 2**30]
        rows.append(
            [name, f"{images:,.0f}", *map(number, figures), engine, f"{machines:,}", number(hours / machines / 24)]
        )
    header = ["descriptors", "photos", "days to extract", "TB of features", "index in memory, GiB", "engine"]
    return table([*header, "machines for the index", "days to build it"], rows)


def milvus_table(results: dict[str, Any]) -> str:
    """Return recall and speed of FAISS and Milvus with the same lists and probes."""
    rows = []
    for one in results["search"]:
        both = [one[engine] for engine in ("FAISS", "Milvus")]
        recalls, speeds = (
            [f"{engine[key]:{form}}" for engine in both]
            for key, form in (("recall@1", ".3f"), ("queries per CPU second", ",.0f"))
        )
        rows.append([f"{one['probes']} of {one['lists']:,}", *recalls, *speeds, f"{one['Milvus over FAISS']:.2f}"])
    header = ["lists searched", "recall@1: FAISS", "Milvus", "queries per CPU second: FAISS", "Milvus", "ratio"]
    return table(header, rows)


def number(value: float) -> str:
    """Return a number with two digits."""
    if value < 0.01:
        return "< 0.01"
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
