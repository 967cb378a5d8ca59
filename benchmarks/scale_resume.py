"""Resume a finished extraction of many images: time and memory until nothing is left to do.

    python benchmarks/scale_resume.py --images 1000000 --out results/scale/resume.json

The images are empty files in folders of a thousand. Their features are synthetic: the manifest has a row for each image
with the size and time of its file, and all rows refer to one part. `doap extract` then lists the folder, compares it
with the manifest and ends, without reading any image. With `--shards N`, shard 1 of N does the same, on its share.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import record

from doap.scale import FeatureSet, extract_folder
from doap.scale.features import MANIFEST, MANIFEST_SCHEMA, _encode_manifest
from doap.scale.image_folder import ImageFolder, Shard
from doap.scale.storage import LocalFolder

DESCRIPTOR = "rootsift"


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 10])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        write_files(images, options.images)
        rows = [resume(images, Path(folder) / f"features-{count}", count) for count in options.shards]
    record.write(options.out, options.seed, {"images": options.images, "files": "empty files", "table": rows})


def write_files(images: Path, count: int) -> None:
    """Write empty files."""
    for start in range(0, count, 1000):
        folder = images / f"{start // 1000:06}"
        folder.mkdir(parents=True)
        for number in range(start, min(start + 1000, count)):
            os.close(os.open(f"{folder}/photo-{number:09}.jpg", os.O_CREAT))


def resume(images: Path, out: Path, shards: int) -> dict[str, Any]:
    """Write a finished run of shard 1, and time the same command again."""
    shard = None if shards == 1 else Shard(1, shards)
    write_manifest(images, out, shard)
    words = [sys.executable, "-m", "doap", "extract", images, "--out", out, "--descriptor", DESCRIPTOR]
    words += ["--shard", f"1/{shards}"] if shard else []
    start = time.perf_counter()
    peak = 0
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        # The maximum that the system reports at the end includes the memory of this process before `exec`.
        while process.poll() is None:
            peak = max(peak, high_water(process.pid))
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        assert process.stdout is not None
        output = process.stdout.read().splitlines()[0].rpartition("/")[2]
    assert process.returncode == 0
    row = {"shards": shards, "seconds": seconds, "peak MiB": peak / 1024, "output": output}
    print(row, flush=True)
    return row


def high_water(process: int) -> int:
    """Return the largest resident size of a process so far in KiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def write_manifest(images: Path, out: Path, shard: Shard | None) -> None:
    """Extract one image, and write a manifest that assigns its row to all images."""
    one = images.parent / "one"
    one.mkdir(exist_ok=True)
    if not (one / "a.png").exists():
        import cv2

        cv2.imwrite(str(one / "a.png"), np.random.default_rng(0).integers(0, 256, (100, 120), np.uint8))
    target = out / shard.folder if shard else out
    extract_folder(one, target, DESCRIPTOR, workers=1)
    stored = FeatureSet(target)
    row = stored.manifest.to_pylist()[0]
    listing = ImageFolder.open(images).list(shard)
    columns = {name: [row[name]] * len(listing) for name in MANIFEST_SCHEMA.names}
    columns |= {"name": list(listing), "stamp": list(listing.values()), "checksum": ["0" * 64] * len(listing)}
    table = pa.table(columns, MANIFEST_SCHEMA)
    LocalFolder(target).write(MANIFEST, _encode_manifest(table, stored.extractor.fingerprint))


if __name__ == "__main__":
    main()
