"""The cards of the descriptors that ship, made from their own metadata and from what was measured.

    python benchmarks/cards.py results/evaluation

For each *.safetensors in `src/doap/weights` it writes NAME.md beside it. `notes/NAME.md` beside this file is the part
that no result can tell: what it is good for and where it fails. Nothing else is written by hand, so nothing can differ.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from doap.descriptor import SHIPPED, Descriptor

NOTES = Path(__file__).with_name("notes")
BASELINES = ("rootsift", "dsp-sift", "tfeat-liberty", "vgg", "teblid")
BENCHMARKS = {
    "oxford-oxford_affine": ("mAP", "Oxford mAP"),
    "oxford-hpatches_sequences": ("mAP", "two HPatches sequences, mAP"),
    "patches-test.patches": ("retrieval mAP", "`test`, retrieval mAP"),
}
MATCHING = ("patches-test.patches", "matching mAP", "`test`, matching mAP")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judged", type=Path)
    judged = parser.parse_args().judged
    for name, path in SHIPPED.items():
        path.with_suffix(".md").write_text(card(name, path, judged), encoding="utf-8")
        print(path.with_suffix(".md"))


def card(name: str, path: Path, judged: Path) -> str:
    """The whole card."""
    descriptor = Descriptor.load(name)
    told, size = descriptor.metadata, descriptor.patch_size
    stored = (
        f"{descriptor.dim // 8} bytes of bits"
        if descriptor.kind == "binary"
        else f"{descriptor.dim} numbers of unit length"
    )
    weights = sum(one.numel() for one in descriptor.network.parameters())
    wide = f", {descriptor.extent:.3g} times as wide as SIFT's" if descriptor.extent != 1 else ""
    return (
        "\n\n".join(
            (
                f"# {name}",
                f'`doap.load("{name}")`: patches of {size}×{size} pixels{wide} → {stored}. '
                f"{descriptor.spec.network} with {weights:,} weights in float16, {path.stat().st_size / 1e6:.2f} MB. "
                "Weights: Apache-2.0, as the code.",
                (NOTES / f"{name}.md").read_text(encoding="utf-8").strip(),
                "## Figures",
                "COLMAP's keypoints, the same for all; 95 % intervals over pairs of images or queries. Made by "
                "`recipes/evaluate.sh`. Oxford, HPatches and `test` had been looked at before, with earlier weights of "
                "ours: docs/weights.md says when.",
                figures(name, judged),
                "## Oxford, sequence by sequence",
                sequences(name, judged),
                "## Photographs",
                ledger(told["ledger"]),
                "## Recipe",
                "By `recipes/weights.sh`; the runs one after the other, each from the weights of the one before.",
                *(
                    f"```json\n{json.dumps(recipe, indent=1)}\n```"
                    for recipe in (*told["earlier_recipes"], told["recipe"])
                ),
            )
        )
        + "\n"
    )


def figures(name: str, judged: Path) -> str:
    """One row per benchmark, one column per descriptor."""
    rows = [(folder, figure, label) for folder, (figure, label) in BENCHMARKS.items()] + [MATCHING]
    names = (name, *BASELINES)
    return table(
        ["", *names],
        ([label, *(cell(judged / folder / f"{one}.json", figure) for one in names)] for folder, figure, label in rows),
    )


def cell(result: Path, figure: str) -> str:
    """A figure with its interval; nothing where there is no result, for DSP-SIFT sees images, not patches."""
    if not result.exists():
        return "–"
    total = find(read(result), figure)["total"]
    return f"{100 * total['value']:.1f} ({100 * total['low']:.1f}–{100 * total['high']:.1f})"


def sequences(name: str, judged: Path) -> str:
    """One row per sequence of Oxford, one column per descriptor."""
    names = (name, *BASELINES)
    parts = [find(read(judged / "oxford-oxford_affine" / f"{one}.json"), "mAP")["parts"] for one in names]
    return table(
        ["", *names],
        ([sequence, *(f"{100 * part[sequence]['value']:.1f}" for part in parts)] for sequence in parts[0]),
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ledger(rows: list[dict[str, Any]]) -> str:
    """How many photos under which licence, of which places; the whole ledger is in the file."""
    licences = ", ".join(
        f"{number} {licence}" for licence, number in Counter(row["licence"] for row in rows).most_common()
    )
    places = Counter(row["scene"] for row in rows)
    return (
        f"{len(rows):,} photographs of {len(places)} places: {licences}. File, author, source and licence of each are "
        'in the weights themselves, `doap.load(…).metadata["ledger"]`.\n\n'
        + ", ".join(f"{place} ({number})" for place, number in sorted(places.items()))
        + "."
    )


def find(result: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(figure for figure in result["figures"] if figure["name"] == name)
    return found


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


if __name__ == "__main__":
    main()
