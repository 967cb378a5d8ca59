"""Install two wheels of OpenCV one after the other, and see what `cv2` has lost and whether doap repairs it.

    python benchmarks/opencv_wheels.py --out results/opencv-wheels.json

The first wheel is the one of a user, and the second one is a candidate for the dependencies of doap. The repair is the
command of `doap doctor`. Each pair has an environment of its own, which also needs numpy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import record

import doap
from doap._support.opencv import WHEELS

LOOK = """
import json
from doap._support.opencv import complete_wheel
from doap.cli.doctor import _has_contrib, _has_windows
print(json.dumps({"has": {"contrib": _has_contrib(), "windows": _has_windows()}, "repair": complete_wheel()}))
"""
# The command line of doap imports this; the environments have nothing else.
NEEDED = ("typer",)


def main() -> None:
    options = record.arguments(__doc__).parse_args()
    rows = [install(first, second) for second in WHEELS for first in WHEELS if first != second]
    for row in rows:
        print(row)
    record.write(options.out, options.seed, {"pairs": rows})


def install(first: str, second: str) -> dict[str, object]:
    """Install two wheels, and return what `cv2` has lost of the first one, before and after the repair."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        run(folder, "-m", "pip", "install", "--quiet", "--no-compile", f"numpy=={np.__version__}", *NEEDED, first)
        before = look(folder)
        run(folder, "-m", "pip", "install", "--quiet", "--no-compile", second)
        after = look(folder)
        run(folder, "-m", "pip", "install", "--quiet", "--no-compile", *after["repair"].split())
        repaired = look(folder)
    lost = [[name for name, has in before["has"].items() if has and not now["has"][name]] for now in (after, repaired)]
    return {"first": first, "second": second, "lost": lost[0], "repair": after["repair"], "lost after repair": lost[1]}


def look(folder: str) -> dict[str, dict[str, bool] | str]:
    """Return what `cv2` has, and the arguments of `pip install` that repair it."""
    return json.loads(run(folder, "-c", LOOK))


def run(folder: str, *words: str) -> str:
    """Run Python in an environment that finds the sources of doap."""
    environment = {**os.environ, "PYTHONPATH": str(Path(doap.__file__).parents[1])}
    command = [str(Path(folder) / "bin" / "python"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


if __name__ == "__main__":
    main()
