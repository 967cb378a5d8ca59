"""Convert the weights of a training run into a shipped descriptor.

    python scripts/ship_weights.py RUN/last.safetensors doap-128 --ratio 0.9

The weights are stored as float16 in `src/doap/weights`, or in another folder, with recipe and ledger in the metadata.
The ledger keeps what a licence requires; the sizes of the photos are dropped to keep the file small. Patch sets of
COLMAP models have no ledger: `--ledger` and `--scene` add the photos of their scenes.

A shipped file may be the input as well, for example to change its threshold of the ratio test. Its weights stay equal:

    python scripts/ship_weights.py src/doap/weights/doap-128.safetensors doap-128 --ratio 0.85
"""

from __future__ import annotations

import argparse
from pathlib import Path

from doap.data.builders.from_images import read_ledger
from doap.data.store import join_ledgers
from doap.descriptor import WEIGHTS, Descriptor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="weights of a run")
    parser.add_argument("name", help="name of the descriptor")
    parser.add_argument("--folder", type=Path, default=WEIGHTS, help="output folder (default: that of the package)")
    parser.add_argument("--extent", type=float, help="patch side / SIFT's support (default: that of the training set)")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="lowest precision without a measured loss")
    parser.add_argument("--ratio", type=float, help="threshold of the ratio test, selected on validation scenes")
    parser.add_argument("--ledger", type=Path, help="ledger of more photos that the descriptor was trained on")
    parser.add_argument("--scene", action="append", default=[], help="scene of that ledger; repeat the option for more")
    options = parser.parse_args()
    descriptor = Descriptor.load(options.file)
    more = (
        [row for row in read_ledger(options.ledger, "train") if row["scene"] in options.scene] if options.scene else []
    )
    rows = [
        {key: value for key, value in row.items() if key not in ("height", "width")}
        for row in (*descriptor.metadata["ledger"], *more)
    ]
    ledger = join_ledgers(rows)
    path = options.folder / f"{options.name}.safetensors"
    ratio = descriptor.ratio if options.ratio is None else options.ratio
    descriptor.save(path, half=True, ledger=ledger, extent=options.extent, precision=options.precision, ratio=ratio)
    print(f"{path.name}: {path.stat().st_size:,} bytes, {len(ledger):,} photos in the ledger")


if __name__ == "__main__":
    main()
