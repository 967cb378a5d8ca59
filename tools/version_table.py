"""Run the quick tests with this Python and record the result, or write the table of the documentation.

    ENVIRONMENT/bin/python tools/version_table.py run lowest       run and record as the set "lowest"
    python tools/version_table.py skip 3.12 pinned "REASON"        record why a combination was not run
    python tools/version_table.py table                            write the table in docs/policies.md

The sets are `pinned` (constraints.txt), `lowest` (tools/lowest_versions.py) and `latest`. Results are stored in
results/versions.json. A new run of a combination replaces the old one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

from generated_markdown import replace_generated, table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "versions.json"
PAGE = ROOT / "docs" / "policies.md"
SETS = ("pinned", "lowest", "latest")
# Packages that the table names; results/versions.json has all of these.
SHOWN = {"torch": "PyTorch", "numpy": "NumPy", "opencv-contrib-python-headless": "OpenCV", "pyarrow": "pyarrow"}
RECORDED = (*SHOWN, "pydantic", "typer", "rich", "safetensors", "pycolmap", "faiss-cpu", "kornia", "h5py", "onnx")
RECORDED += ("onnxruntime", "onnxscript", "ray", "scipy", "poselib", "pillow-heif", "tensorboard", "matplotlib")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="run the quick tests with this Python")
    run.add_argument("set", choices=SETS)
    skip = actions.add_parser("skip", help="record why a combination was not run")
    skip.add_argument("python")
    skip.add_argument("set", choices=SETS)
    skip.add_argument("reason")
    actions.add_parser("table", help="write the table")
    given = parser.parse_args()
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["runs"] if RESULTS.exists() else []
    if given.action == "table":
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replace_generated(text, "tools/version_table.py", {"versions": render(rows)}), encoding="utf-8")
        return
    if given.action == "run":
        new = {"python": platform.python_version(), "set": given.set, **run_quick_tests()}
    else:
        new = {"python": given.python, "set": given.set, "not_run": given.reason}
    content = {"command": "tools/version_table.py run SET, with each Python", "runs": merged(rows, new)}
    RESULTS.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def run_quick_tests() -> dict[str, Any]:
    """Run `scripts/test --quick` with this Python; return counts, failed tests, time and versions."""
    folder = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    with TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        start = time.monotonic()
        command = [str(ROOT / "scripts" / "test"), "--quick", "-q", f"--junitxml={report}"]
        subprocess.run(command, env=environment, check=False)
        seconds = time.monotonic() - start
        counts = count_tests(ElementTree.parse(report).getroot())
    return {"date": str(date.today()), **counts, "seconds": round(seconds), "versions": versions()}


def count_tests(report: ElementTree.Element) -> dict[str, Any]:
    """Return the numbers of passed, skipped and failed tests of a JUnit report, and the names of failed ones."""
    skipped, failed, passed = 0, [], 0
    for case in report.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return {"passed": passed, "skipped": skipped, "failed": len(failed), "failures": failed}


def versions() -> dict[str, str]:
    """Return the versions of the installed dependencies."""
    found = {}
    for name in RECORDED:
        try:
            found[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return found


def minor(python: str) -> tuple[int, ...]:
    """Return the major and minor number of a version."""
    return tuple(int(part) for part in python.split(".")[:2])


def merged(rows: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with a new one, which replaces the row of the same Python and set; sorted."""
    kept = [row for row in rows if (minor(row["python"]), row["set"]) != (minor(new["python"]), new["set"])]
    return sorted([*kept, new], key=lambda row: (minor(row["python"]), SETS.index(row["set"])))


def render(rows: list[dict[str, Any]]) -> str:
    """Return the table: one row per Python and set."""
    header = ["Python", "dependencies", *SHOWN.values(), "passed", "skipped", "failed"]
    lines = []
    for row in rows:
        if "not_run" in row:
            lines.append([row["python"], row["set"], *[""] * len(SHOWN), "not run", "", ""])
        else:
            shown = [row["versions"].get(name, "") for name in SHOWN]
            lines.append(
                [row["python"], row["set"], *shown, *(str(row[key]) for key in ("passed", "skipped", "failed"))]
            )
    notes = [f"- Python {row['python']}, {row['set']}: {row['not_run']}" for row in rows if "not_run" in row]
    return "\n\n".join(filter(None, [table(header, lines), "\n".join(notes)]))


if __name__ == "__main__":
    main()
