"""Kill changes of an index before each of their file operations, and print the state of the index afterwards.

    python index_killer.py INDEX MORE WORK      prints a JSON list of [change, operation, killed, names]

Each change runs in a forked process, which kills itself, like `kill -9`, before its n-th file operation. n increases
until the change completes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir"}


def main(index: Path, more: Path, work: Path) -> None:
    from doap.collection.index import Index, build_index

    changes = {
        "remove": lambda folder: Index(folder).remove(["0.jpg"]),
        "add": lambda folder: Index(folder).add(more),
        "build": lambda folder: build_index(more, folder / "built"),
    }
    states = []
    for name, change in changes.items():
        operation, killed = 0, True
        # Imports of modules open hundreds of files.
        change(Path(shutil.copytree(index, work / f"{name}-0")))
        while killed:
            operation += 1
            folder = work / f"{name}-{operation}"
            shutil.copytree(index, folder)
            child = os.fork()
            if not child:
                die_at(operation)
                change(folder)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            killed = os.WIFSIGNALED(status)
            assert killed or not status, (name, operation, status)
            result = folder / "built" if name == "build" else folder
            names = None
            if result.exists():
                opened = Index(result)
                opened.verify()
                names = opened.names
            states.append([name, operation, killed, names])
    print(json.dumps(states))  # noqa: T201


def die_at(operation: int) -> None:
    left = operation

    def count(event: str, arguments: object) -> None:
        nonlocal left
        left -= event in OPERATIONS
        if event in OPERATIONS and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
