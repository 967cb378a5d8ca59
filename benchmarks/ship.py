"""Make what a run gave a descriptor that ships: float16, with what is known of it, in the package.

    python benchmarks/ship.py RUN/last.safetensors doap-128

The ledger keeps what a licence is about; the photos' sizes are left out, for the file is to stay small.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from doap.descriptor import WEIGHTS, Descriptor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("name")
    parser.add_argument("--extent", type=float, help="of the patches it is used on, if not that of its training set")
    options = parser.parse_args()
    descriptor = Descriptor.load(options.file)
    ledger = [
        {key: value for key, value in row.items() if key not in ("height", "width")}
        for row in descriptor.metadata["ledger"]
    ]
    path = WEIGHTS / f"{options.name}.safetensors"
    extent = options.extent or descriptor.extent
    descriptor.save(path, half=True, ledger=ledger, extent=extent)
    print(f"{path.name}: {path.stat().st_size:,} bytes, {len(ledger):,} photos")


if __name__ == "__main__":
    main()
