"""Time a contributor's path in a new clone: quick tests, then a changed loss, its tests and its documentation page.

    python benchmarks/contributor_path.py --out results/contributor-path.json

The packages are those of this environment; installing them is not timed. The clone has no data beside it. Each step
states wall time and processor time: on a busy machine, only the latter means something, and the load is recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOSS = Path("src/doap/loss/listwise.py")
STEPS = {
    "quick tests": ["scripts/test", "--quick", "-q"],
    "tests of the loss": ["scripts/test", "tests/loss", "-q", "-n", "0"],
    "documentation page": ["scripts/docs"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch) / "doap"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", clone], check=True)
        steps = [timed(name, command, clone) for name, command in STEPS.items()]
        assert (clone / "docs/_build/html/loss.html").is_file()
    result = {
        "command": "python benchmarks/contributor_path.py --out results/contributor-path.json",
        "date": str(date.today()),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "steps": steps,
    }
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def timed(name: str, command: list[str], clone: Path) -> dict[str, object]:
    """Run a step in the clone; return its times in seconds, the load average and pytest's summary."""
    if name == "tests of the loss":
        change_loss(clone / LOSS)
    environment = {key: value for key, value in os.environ.items() if key != "DOAP_DATA"}
    environment["PYTHONPATH"] = str(clone / "src")
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ran = subprocess.run([clone / command[0], *command[1:]], cwd=clone, env=environment, capture_output=True, text=True)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 0, f"{name}: {ran.stdout[-3000:]}{ran.stderr[-3000:]}"
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    summary = re.findall(r"^(\d+ passed.*?) in ", ran.stdout, re.MULTILINE)
    times = {"wall_seconds": round(wall, 1), "processor_seconds": round(used, 1), "load": round(os.getloadavg()[0], 1)}
    return {"step": name, "command": " ".join(command), **times, "summary": summary[-1] if summary else None}


def change_loss(path: Path) -> None:
    """Edit the docstring of the loss, as a contributor would."""
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"""', '"""Changed. ', 1), encoding="utf-8")


if __name__ == "__main__":
    main()
