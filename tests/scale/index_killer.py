"""Kill changes of an index at each of their moments, and say what was there afterwards.

    python index_killer.py INDEX MORE ROOM      prints a JSON list of [change, moment, killed, names]

A moment is an operation on a file. The change runs in a process of its own, forked from this one so that it starts at
once, which kills itself, as `kill -9` would, when it is about to do the n-th operation; n grows until none is left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir"}


def main(index: Path, more: Path, room: Path) -> None:
    from doap.scale.features import FeatureSet
    from doap.scale.index import Index, add_images, build_index, remove_images

    changes = {
        "remove": lambda folder: remove_images(folder, ["0.jpg"]),
        "add": lambda folder: add_images(folder, FeatureSet(more)),
        "build": lambda folder: build_index(FeatureSet(more), folder / "built"),
    }
    told = []
    for name, change in changes.items():
        moment, killed = 0, True
        while killed:
            moment += 1
            folder = room / f"{name}-{moment}"
            shutil.copytree(index, folder)
            child = os.fork()
            if not child:
                die_at(moment)
                change(folder)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            killed = os.WIFSIGNALED(status)
            assert killed or not status, (name, moment, status)
            looked_at = folder / "built" if name == "build" else folder
            names = None
            if looked_at.exists():
                opened = Index(looked_at)
                opened.verify()
                names = opened.names
            told.append([name, moment, killed, names])
    print(json.dumps(told))  # noqa: T201


def die_at(moment: int) -> None:
    left = moment

    def count(event: str, arguments: object) -> None:
        nonlocal left
        left -= event in OPERATIONS
        if event in OPERATIONS and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
