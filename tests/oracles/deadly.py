"""Detectors and a describer that kill their process, as a crash in a library or kill -9 does, or take their time."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from doap.describer import PatchDescriber
from doap.descriptor import Descriptor
from doap.detectors import sift

DEADLY_WIDTH = 161


def _die(ledger: Path, times: int) -> None:
    """Kill this process, unless the ledger already lists this many."""
    if len(list(ledger.iterdir())) < times:
        (ledger / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DeadlyDetector:
    """SIFT; an image with a width of 161 pixels kills the process, the first `times` times."""

    ledger: Path
    times: int
    name: str = "deadly"
    magnification: float = 6.0

    def detect(self, image, max_keypoints=None):
        if image.shape[1] == DEADLY_WIDTH:
            _die(self.ledger, self.times)
        return sift().detect(image, max_keypoints)


@dataclass(frozen=True)
class SlowDetector:
    """SIFT that takes some seconds, unless it was created in this process."""

    seconds: float
    name: str = "slow"
    magnification: float = 6.0
    home: int = field(default_factory=os.getpid)

    def detect(self, image, max_keypoints=None):
        if os.getpid() != self.home:
            time.sleep(self.seconds)
        return sift().detect(image, max_keypoints)


@dataclass(frozen=True)
class DeadlyDescriber(PatchDescriber):
    """A network that kills its process, the first `times` times, unless it was created there."""

    network: Descriptor
    ledger: Path
    times: int
    home: int = field(default_factory=os.getpid)

    patch_size = 32
    kind = "real"
    dim = 128
    extent = 1.0

    def describe_patches(self, patches):
        if os.getpid() != self.home:
            _die(self.ledger, self.times)
        return self.network.describe_patches(patches)
