"""Checkpoints: `state.pt` is written atomically and read without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field

from doap._support.errors import DataError
from doap._support.files import atomic_write
from doap._support.settings import FORBID_EXTRA, validate


@dataclass
class RunProgress:
    """Steps done, seconds of training, best validation mAP, the step that reached it, and the size of the log."""

    __pydantic_config__ = FORBID_EXTRA

    step: Annotated[int, Field(ge=0)] = 0
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    best_map: float = -1.0
    best_step: int = -1
    log_size: Annotated[int, Field(ge=0)] = 0


@dataclass
class _Checkpoint:
    """Content of a checkpoint that does not depend on the parts of the run."""

    recipe: dict[str, Any]
    progress: RunProgress


def save_state(path: Path, recipe: dict[str, Any], parts: Mapping[str, Any], progress: RunProgress) -> None:
    """Write a checkpoint atomically: the states of network, optimiser, loss, …, by name."""
    states = {name: part.state_dict() for name, part in parts.items()}
    with atomic_write(path) as unfinished:
        torch.save({"recipe": recipe, **states, "progress": vars(progress)}, unfinished)


def load_state(path: Path, recipe: dict[str, Any], parts: Mapping[str, Any]) -> RunProgress:
    """Restore the parts of a run from a checkpoint and return its progress; without a checkpoint, return step 0.

    A run resumes only with its own recipe. With another learning rate or another set, the result would belong to
    neither recipe.
    """
    if not path.exists():
        return RunProgress()
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise DataError(f"{path}: the checkpoint is damaged; remove it, or the folder of the run") from error
    progress = validate(_Checkpoint, state, f"{path}: not a checkpoint of this version; choose another --out").progress
    changed = [key for key in recipe if recipe[key] != state["recipe"].get(key)]
    if changed:
        raise DataError(
            f"{path}: the run was started with another recipe (sections that differ: {', '.join(changed)}); "
            "choose another --out"
        )
    for name, part in parts.items():
        try:
            part.load_state_dict(state[name])
        # Modules and optimisers check little, and raise what their first operation on the state raises.
        except Exception as error:
            raise DataError(
                f"{path}: the state of the {name} does not fit ({error}); remove it, or choose another --out"
            ) from error
    return progress
