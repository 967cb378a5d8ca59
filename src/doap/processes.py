"""Processes that this one has started."""

from __future__ import annotations

import multiprocessing
import os
import threading


def follow_parent() -> None:
    """Called in a worker: it ends when its parent does, however that ends, and is not left behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
