"""Control descriptors that must score at chance level; a control that does better exposes a bug in the benchmark."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap._support.random_streams import stream
from doap.baselines import rootsift
from doap.describer import FunctionDescriber, PatchDescriber, from_function

DIM = 128


def constant() -> FunctionDescriber:
    """Return a control that describes every patch alike, so that all distances tie."""
    return from_function(lambda patches: torch.full((len(patches), DIM), DIM**-0.5), name="constant")


def random() -> FunctionDescriber:
    """Return a control whose descriptors are random unit vectors."""
    return from_function(_random_vectors, name="random")


def shuffled(describer: PatchDescriber | None = None) -> FunctionDescriber:
    """Return a control that assigns real descriptors, by default RootSIFT's, to the wrong patches."""
    real = describer or rootsift()

    def describe(patches: Tensor) -> Tensor:
        order = _generator(patches).permutation(len(patches))
        return real.describe_patches(patches)[torch.from_numpy(order)]

    return from_function(describe, patch_size=real.patch_size, name="shuffled")


def _random_vectors(patches: Tensor) -> Tensor:
    return normalize(torch.from_numpy(_generator(patches).standard_normal((len(patches), DIM), np.float32)))


def _generator(patches: Tensor) -> np.random.Generator:
    """Return a generator seeded by the patches, so that two images do not get the same random numbers."""
    return stream(int(patches.double().sum() * 1000) % 2**32, "control")


CONTROLS: dict[str, Callable[[], FunctionDescriber]] = {"constant": constant, "random": random, "shuffled": shuffled}
"""Descriptors that must score at chance level, by name."""
