"""Descriptors that must score what chance gives; where one does better, it is the benchmark that is broken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap.baselines import rootsift
from doap.describer import Describer, FunctionDescriber, from_function
from doap.random_streams import stream

DIM = 128


def constant() -> FunctionDescriber:
    """The same for every patch: all distances tie."""
    return from_function(lambda patches: torch.full((len(patches), DIM), DIM**-0.5), name="constant")


def random() -> FunctionDescriber:
    """Random unit vectors that know nothing of their patches."""
    return from_function(_random, name="random")


def shuffled(describer: Describer | None = None) -> FunctionDescriber:
    """Real descriptors, given to the wrong patches; those of RootSIFT if not told otherwise."""
    real = describer or rootsift()

    def describe(patches: Tensor) -> Tensor:
        described = real.describe(patches)
        return described[torch.from_numpy(_order(patches).permutation(len(patches)))]

    return from_function(describe, patch_size=real.patch_size, name="shuffled")


def _random(patches: Tensor) -> Tensor:
    return normalize(torch.from_numpy(_order(patches).standard_normal((len(patches), DIM), np.float32)))


def _order(patches: Tensor) -> np.random.Generator:
    """A stream for these patches together, so that two images are not given the same numbers in the same order."""
    return stream(int(patches.double().sum() * 1000) % 2**32, "control")


CONTROLS: dict[str, Callable[[], FunctionDescriber]] = {"constant": constant, "random": random, "shuffled": shuffled}
