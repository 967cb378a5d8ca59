"""What a killed run resumes from: `state.pt`, whole or not at all, read without pickle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from doap.errors import DataError
from doap.files import atomic_write


@dataclass
class Progress:
    """Where a run stands: steps done, seconds spent training, its best validation so far, and the step it was at."""

    step: int = 0
    seconds: float = 0.0
    best_map: float = -1.0
    best_step: int = -1


def save_state(
    path: Path, recipe: dict[str, Any], network: nn.Module, optimiser: torch.optim.Optimizer, progress: Progress
) -> None:
    """Write the state to a temporary name, to the disk, and rename."""
    state = {
        "recipe": recipe,
        "network": network.state_dict(),
        "optimiser": optimiser.state_dict(),
        "progress": vars(progress),
    }
    with atomic_write(path) as unfinished:
        torch.save(state, unfinished)


def load_state(path: Path, recipe: dict[str, Any], network: nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
    """Put a saved state back; a run that has not saved any yet starts at 0.

    Another recipe does not resume: a changed learning rate or set would make neither the old run nor a new one.
    """
    if not path.exists():
        return Progress()
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise DataError(f"{path}: expected a state to resume from, got a damaged one; remove it or its run") from error
    changed = [key for key in recipe if recipe[key] != state["recipe"].get(key)]
    if changed:
        raise DataError(f"{path}: was made with another recipe ({', '.join(changed)} differ); choose another --out")
    network.load_state_dict(state["network"])
    optimiser.load_state_dict(state["optimiser"])
    return Progress(**state["progress"])
