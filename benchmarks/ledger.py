"""Read the ledger of a folder of photos."""

from __future__ import annotations

import csv
from pathlib import Path


def read_ledger(photos: Path) -> list[dict[str, str]]:
    """Return the rows of PHOTOS/LEDGER.csv, with the scene of each photo as `scene`."""
    with (photos / "LEDGER.csv").open(newline="", encoding="utf-8") as file:
        # Published ledgers call the scene column `place`.
        return [{**row, "scene": row.get("scene") or row["place"]} for row in csv.DictReader(file)]
