"""Extract a thousand photos while processes are killed, and compare the result with an undisturbed run.

    python benchmarks/scale_faults.py PHOTOS --out results/scale/faults.json

The photos include twenty damaged files. Each engine runs as `doap extract`. Three times during the run, one of the
worker processes is killed. Another run is interrupted as with Ctrl-C, and repeated.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import record

from doap.images import list_images
from doap.scale import FeatureSet
from doap.scale.storage import open_storage

DAMAGED = 20
KILLS = 3
# Titles of the worker processes. Ray names a process after its current task.
TITLES = {"ray": "ray::_extract_part", "local": "spawn_main"}


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of images")
    parser.add_argument("--descriptor", default="doap-128", help="descriptor")
    parser.add_argument("--max-keypoints", type=int, default=300, help="maximum number of keypoints per image")
    parser.add_argument("--limit", type=int, help="use only this many photos")
    parser.add_argument("--engines", nargs="*", default=["local", "ray"], help="engines to test")
    options = parser.parse_args()
    # A shell starts background jobs with interrupts ignored, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    figures: dict[str, Any] = {
        "damaged": DAMAGED,
        "max_keypoints": options.max_keypoints,
        "descriptor": options.descriptor,
    }
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        copy_photos(options.photos, work / "images", options.limit)
        damaged = damage(work / "images", options.seed)
        figures["photos"] = len(list_images(work / "images")) - DAMAGED
        common = [
            str(work / "images"),
            "--descriptor",
            options.descriptor,
            "--max-keypoints",
            str(options.max_keypoints),
            "--json",
        ]
        start = time.perf_counter()
        run([*common, "--engine", "local", "--out", str(work / "undisturbed")])
        seconds = time.perf_counter() - start
        expected = rows_of(work / "undisturbed")
        print(f"undisturbed: {seconds:.0f} s, {len(expected):,} images", flush=True)
        for engine in options.engines:
            command = [*common, "--engine", engine, "--out"]
            figures[engine] = {
                "killed": disturbed([*command, str(work / f"{engine} killed")], engine, seconds)
                | compare(work / f"{engine} killed", expected, damaged),
                "interrupted": interrupted([*command, str(work / f"{engine} stopped")], seconds / 2)
                | compare(work / f"{engine} stopped", expected, damaged),
            }
            print(engine, json.dumps(figures[engine], indent=1), flush=True)
    record.write(options.out, options.seed, figures)


def copy_photos(photos: Path, out: Path, limit: int | None) -> None:
    """Copy the photos, or some of them."""
    for path in list_images(photos)[:limit]:
        target = out / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def damage(images: Path, seed: int) -> set[str]:
    """Add twenty damaged image files (empty, text, truncated, random bytes); return their names."""
    random = np.random.default_rng(seed)
    names = set()
    for number, path in enumerate(random.choice(np.array(list_images(images), object), DAMAGED, replace=False)):
        content = path.read_bytes()
        bad = path.with_name(f"damaged-{number:02}{path.suffix}")
        kinds = [b"", b"this is not an image\n", content[: len(content) // 50], random.bytes(len(content))]
        bad.write_bytes(kinds[number % len(kinds)])
        names.add(bad.relative_to(images).as_posix())
    return names


def run(arguments: list[str]) -> dict[str, Any]:
    """Run a command without disturbance; return its JSON output."""
    done = subprocess.run(command_of(arguments), capture_output=True, text=True, check=True)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def command_of(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "doap", "extract", *arguments]


def disturbed(arguments: list[str], engine: str, seconds: float) -> dict[str, Any]:
    """Run a command and kill processes after a quarter, half and three quarters of the expected time."""
    process = subprocess.Popen(command_of(arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    start, killed = time.perf_counter(), []
    for moment in range(1, KILLS + 1):
        time.sleep(max(0, start + seconds * moment / (KILLS + 1) - time.perf_counter()))
        kill(process.pid, TITLES[engine])
        killed.append({"after, s": round(time.perf_counter() - start, 1), "process": TITLES[engine]})
    summary = json.loads(process.communicate()[0].splitlines()[-1])
    return {"kills": killed, "exit": process.returncode, "extracted": summary["extracted"]}


def interrupted(arguments: list[str], seconds: float) -> dict[str, Any]:
    """Interrupt a command and run it again."""
    process = subprocess.Popen(command_of(arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    started = {one: title for one in descendants(process.pid) if (title := title_of(one))}
    process.send_signal(signal.SIGINT)
    code = process.wait(120)
    assert code == 130, f"expected exit code 130 after an interrupt, got {code}"
    left = [one for one, title in started.items() if title_of(one) == title]
    again = run(arguments)
    return {
        "exit": code,
        "processes left": len(left),
        "reused": again["reused"],
        "extracted by the second run": again["extracted"],
    }


def kill(parent: int, title: str) -> None:
    """Kill a descendant with this title, as with `kill -9`; wait until there is one."""
    for _ in range(600):
        for process in descendants(parent):
            if title in title_of(process):
                os.kill(process, signal.SIGKILL)
                return
        time.sleep(0.1)
    raise RuntimeError(f"no process with the title {title}")


def descendants(parent: int) -> list[int]:
    """Return the direct and indirect child processes."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found, wanted = [], {parent}
    while wanted:
        wanted = {child for child, of in parents.items() if of in wanted}
        found += sorted(wanted)
    return found


def title_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def rows_of(out: Path | str) -> dict[str, tuple[bytes, bytes]]:
    """Return frames and descriptors of each image as bytes."""
    return {
        one.name: (one.features.frames.tobytes(), one.features.descriptors.numpy().tobytes())
        for one in FeatureSet(out).stream()
    }


def compare(out: Path | str, expected: dict[str, tuple[bytes, bytes]], damaged: set[str]) -> dict[str, Any]:
    """Compare the stored images with the expected ones."""
    storage = open_storage(out)
    parts = [file.name for file in storage.list() if file.name.startswith("part-")]
    names = [name for part in parts for name in pq.read_table(storage.open(part), columns=["name"])["name"].to_pylist()]
    rows = rows_of(out)
    return {
        "rows": len(names),
        "rows that are there twice": len(names) - len(set(names)),
        "images missing": len(expected.keys() - rows.keys()),
        "images that differ": sum(rows[name] != expected[name] for name in rows.keys() & expected.keys()),
        "damaged files reported": len(damaged & FeatureSet(out).failed.keys()),
        "others reported": len(FeatureSet(out).failed.keys() - damaged),
    }


if __name__ == "__main__":
    main()
