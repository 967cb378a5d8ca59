"""The cost sheet of large collections, made from what was measured.

    python benchmarks/scale.py results/scale

reads extract.json, extract-600.json (more images), faults.json, retrieval.json, pairs.json and index.json, which the
benchmarks of these names wrote (`scale_extract.py` and so on), and writes docs/scale.md and its picture.
`notes/scale.md` is the text around them.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import median
from typing import Any

from cards import table

from doap.scale.index import plan_index

ROOT = Path(__file__).parents[1]
NOTES = Path(__file__).with_name("notes")

# A machine to count with, as one can rent everywhere, and what an image gives it.
CORES, MEMORY = 32, 128 * 2**30
STORED, VOTING = 1000, 300
COLLECTIONS = {"10⁶": 10**6, "10⁸": 10**8, "10⁹": 10**9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    results = parser.parse_args().results
    told = {path.stem: json.loads(path.read_text()) for path in results.glob("*.json")}
    tables = {
        "extraction": extraction([told["extract"], told["extract-600"]]),
        "start": start_of_ray(told["extract"]["seconds"]),
        "faults": faults(told["faults"]),
        "retrieval": retrieval(told["retrieval"]),
        "pairs": pairs(told["pairs"]),
        "indexes": indexes(told["index"]["indexes"]),
        "overhead": overhead(told["index"]["indexes"]),
        "costs": costs(told["extract"], told["index"]["indexes"]),
    }
    text = (NOTES / "scale.md").read_text(encoding="utf-8")
    for name, rows in tables.items():
        text = text.replace(f"{{{name}}}", rows)
    (ROOT / "docs" / "scale.md").write_text(text, encoding="utf-8")
    draw(told["index"]["indexes"], ROOT / "docs" / "pictures" / "scale-search.png")


def extraction(runs: list[dict[str, Any]]) -> str:
    """The first run has all ways, others may lack the slowest."""
    return table(
        ["", "images/s", "descriptors/s", *(f"over two bare processes, {told['images']:,} images" for told in runs)],
        [
            [
                way,
                f"{runs[0]['images/s'][way]:.1f}",
                f"{runs[0]['descriptors/s'][way]:,.0f}",
                *(f"{ratio:.2f}" if (ratio := told["speed over two bare processes"].get(way)) else "" for told in runs),
            ]
            for way in runs[0]["images/s"]
        ],
    )


def start_of_ray(seconds: dict[str, list[float]]) -> str:
    """Seconds that Ray took for itself, before and after its work."""
    return f"{median(seconds['start of Ray']) + median(seconds['stop of Ray']):.0f}"


def faults(told: dict[str, Any]) -> str:
    rows = []
    for engine in ("local", "ray"):
        for run, one in told[engine].items():
            kills = len(one.get("kills", []))
            what = f"{kills} processes killed" if kills else f"interrupted; {one['kept']:,} kept by the second run"
            rows.append(
                [
                    f"{engine}, {run}",
                    what,
                    *(f"{one[key]:,}" for key in ("images missing", "rows that are there twice", "images that differ")),
                    f"{one['damaged files reported']} of {told['damaged']}",
                ]
            )
    return table(["", "what happened", "missing", "twice", "different", "damaged files told"], rows)


def retrieval(told: dict[str, Any]) -> str:
    ways = told["ways"]
    places = list(next(iter(ways.values()))["places"])
    return table(
        ["", "`val`", "`test`", *places, "bytes of a descriptor"],
        [
            [
                way,
                *(f"{100 * one[split]:.1f}" for split in ("val", "test")),
                *(f"{100 * one['places'][place]:.0f}" for place in places),
                f"{one['bytes of a descriptor']:.0f}",
            ]
            for way, one in ways.items()
        ],
    )


def pairs(told: dict[str, Any]) -> str:
    return table(
        ["", "pairs", "photos registered", "of each place"],
        [
            [
                name,
                f"{told[name]['pairs']:,}",
                f"{told[name]['images']:,}",
                ", ".join(f"{place} {count}" for place, count in told[name]["registered"].items()),
            ]
            for name in ("chosen", "all")
        ],
    )


def indexes(rows: list[dict[str, Any]]) -> str:
    return table(
        [
            "descriptor",
            "how many",
            "index",
            "bytes each",
            "build, s",
            "GiB",
            "ms a query",
            "recall@1",
            "with a match",
            "by codes alone",
        ],
        [
            [
                one["descriptor"],
                f"{one['descriptors']:,}",
                f"**{one['kind']}**" if one["planned"] else one["kind"],
                f"{one['bytes of a descriptor']:.0f}",
                f"{one['seconds to build']:.1f}",
                f"{one['GiB to build and search']:.1f}",
                f"{one['ms of a query']:.3g}",
                f"{one['recall@1']:.3f}",
                f"{one['recall@1 of those with a match']:.3f}",
                by_codes(one["by codes alone"]) if "by codes alone" in one else "",
            ]
            for one in rows
        ],
    )


def overhead(rows: list[dict[str, Any]]) -> str:
    """The most that our search took, of FAISS's time."""
    return "{:.2f}".format(max(one["our search over FAISS's"] for one in rows))


def by_codes(one: dict[str, float]) -> str:
    match = one["recall@1 of those with a match"]
    return f"{one['ms of a query']:.3g} ms, {one['recall@1']:.3f}, {match:.3f}"


def costs(extract: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """On paper: what collections would take, from what one core and the largest index took."""
    of_a_core = extract["images/s"]["two processes"] / 2 * extract["max_keypoints"] / STORED
    largest = max((one for one in rows if one["kind"] == "ivf-pq"), key=lambda one: one["descriptors"])
    told = []
    for name, images in COLLECTIONS.items():
        voting = images * VOTING
        memory = voting * largest["bytes of a descriptor"]
        machines = math.ceil(memory / (0.75 * MEMORY))
        # Each of the machines searches its own share.
        query = largest["ms of a query"] * compared(voting / machines) / compared(largest["descriptors"])
        told.append(
            [
                name,
                f"{images / of_a_core / CORES / 3600:,.0f}",
                f"{images * STORED * (2 * 128 + 28) / 1e12:,.1f}",
                f"{voting / 1e9:,.1f}",
                f"{memory / 2**30:,.0f}",
                # The descriptors themselves, and where they lie.
                f"{(memory + voting * (2 * 128 + 24)) / 1e12:,.1f}",
                f"{machines:,}",
                f"{query * VOTING / 1000:,.1f}",
            ]
        )
    return table(
        [
            "images",
            "machine-hours to extract",
            "TB of features",
            "10⁹ descriptors that vote",
            "GiB of index in memory",
            "TB of index on disk",
            "machines that hold it",
            "seconds of one core, on each, for a photo",
        ],
        told,
    )


def compared(count: float) -> float:
    """Centres and descriptors that one query is compared with."""
    plan = plan_index(round(count), "real", 128, "ivf-pq")
    return plan.lists + plan.probes * count / plan.lists


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """Search time against size, both logarithmic."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), dpi=150)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92")
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for one in rows:
        lines.setdefault((one["descriptor"], one["kind"]), []).append((one["descriptors"], one["ms of a query"]))
    for (descriptor, kind), points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=f"{descriptor}, {kind}")
    axes.set(xscale="log", yscale="log", xlabel="descriptors in the index", ylabel="ms of a query descriptor, one core")
    axes.legend(frameon=False)
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, bbox_inches="tight")


if __name__ == "__main__":
    main()
