"""Checkpoints: `state.pt` is written atomically and read without pickle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from doap.errors import DataError
from doap.files import atomic_write


@dataclass
class RunProgress:
    """Progress of a run: steps done, seconds of training, best validation mAP, and the step that reached it."""

    step: int = 0
    seconds: float = 0.0
    best_map: float = -1.0
    best_step: int = -1


def save_state(
    path: Path, recipe: dict[str, Any], network: nn.Module, optimiser: torch.optim.Optimizer, progress: RunProgress
) -> None:
    """Write a checkpoint atomically."""
    state = {
        "recipe": recipe,
        "network": network.state_dict(),
        "optimiser": optimiser.state_dict(),
        "progress": vars(progress),
    }
    with atomic_write(path) as unfinished:
        torch.save(state, unfinished)


def load_state(path: Path, recipe: dict[str, Any], network: nn.Module, optimiser: torch.optim.Optimizer) -> RunProgress:
    """Restore network and optimiser from a checkpoint and return its progress; without a checkpoint, return step 0.

    A run resumes only with its own recipe. With another learning rate or another set, the result would belong to
    neither recipe.
    """
    if not path.exists():
        return RunProgress()
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise DataError(f"{path}: the checkpoint is damaged; remove it, or the folder of the run") from error
    changed = [key for key in recipe if recipe[key] != state["recipe"].get(key)]
    if changed:
        raise DataError(
            f"{path}: the run was started with another recipe (sections that differ: {', '.join(changed)}); "
            "choose another --out"
        )
    network.load_state_dict(state["network"])
    optimiser.load_state_dict(state["optimiser"])
    return RunProgress(**state["progress"])
