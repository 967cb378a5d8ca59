"""Kill a build at random times, resume it each time, and compare the set byte by byte with an undisturbed one.

    python benchmarks/build_kills.py PHOTOS val.patches --split val --out results/build-kills.json

PHOTOS contains LEDGER.csv and the photos; val.patches is the undisturbed set, built by the same command.
"""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import record

from doap.files import sha256


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder with LEDGER.csv and the photos")
    parser.add_argument("undisturbed", type=Path, help="patch set of an undisturbed build")
    parser.add_argument("--ledger", type=Path, help="CSV ledger (default: PHOTOS/LEDGER.csv)")
    parser.add_argument("--split", default="val", help="split to build")
    parser.add_argument("--kills", type=int, default=5, help="number of kills")
    parser.add_argument("--longest", type=float, default=60.0, help="maximum seconds before a kill")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        ledger = options.ledger or options.photos / "LEDGER.csv"
        command = ["doap", "data", "from-images", str(options.photos), "--ledger", str(ledger)]
        command += ["--split", options.split, "--out", str(out), "--workers", "2", "--json"]
        killed = []
        while len(killed) < options.kills:
            delay = generator.uniform(3, options.longest)
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            else:
                raise SystemExit("The build finished before it was killed. Use a smaller --longest.")
            done = len(list((Path(folder) / "set.unfinished" / "units").glob("*.arrow")))
            killed.append({"after_seconds": round(delay, 1), "units_done": done})
            print(killed[-1], flush=True)
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = round(time.perf_counter() - start, 1)
        names = ("patches.npy", "groups.parquet", "meta.json")
        same = {name: sha256(out / name) == sha256(options.undisturbed / name) for name in names}
    print({"last run, seconds": seconds, "identical": same})
    record.write(options.out, options.seed, {"killed": killed, "last_run_seconds": seconds, "identical": same})


if __name__ == "__main__":
    main()
