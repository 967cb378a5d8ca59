"""A kill, as kill -9 or a power failure, while the second group is written to an HDF5 file."""

from __future__ import annotations

import os
import signal

from doap.export import hdf5


def add(deadly, path, settings, groups):
    """Add groups; in a file whose name contains `deadly`, kill the calling process and this one in the second group."""
    hdf5.add(path, settings, _deadly(groups) if deadly in path else groups)


def _deadly(groups):
    yield next(groups)
    yield next(groups)._replace(arrays=_DeadlyArrays())


class _DeadlyArrays(dict):
    def items(self):
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
