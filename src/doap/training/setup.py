"""The parts of a run that a recipe describes: data, descriptor, loss and schedule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from doap._support.errors import ArgumentError, DataError
from doap.data.batches import Batches
from doap.data.mining import mine
from doap.data.sampler import hold_out
from doap.data.store import PatchSet, open_set
from doap.descriptor import Descriptor
from doap.evaluation.validation import PatchSample
from doap.loss import Loss
from doap.training.config import Config, ScheduleSection
from doap.training.distributed import Ranks


def build_data(config: Config, ranks: Ranks) -> tuple[PatchSet, Batches, PatchSample]:
    """Open the training set; return it with its batches and the validation sample."""
    data, seed = config.data, config.run.seed
    if data.train is None:
        raise DataError("data.train: expected a patch-group set, got none; set it in the recipe or with --data")
    source = open_set(data.train)
    validation_set = source if data.validation is None else open_set(data.validation)
    _check_extent(validation_set, data.validation or data.train, saved_extent(config, source))
    if data.validation is None:
        held_out = hold_out(source, data.held_out, seed)
        validation = PatchSample.draw(validation_set, among=held_out)
    else:
        held_out = np.zeros(len(source), dtype=bool)
        validation = PatchSample.draw(validation_set)
    sampler = config.sampler.selected(
        source, data.batch_size, seed, per_group=data.per_group, among=~held_out, **dict(config.sampler.settings)
    )
    batches = Batches(
        source,
        sampler,
        seed=seed,
        augmentation=config.augmentation,
        rank=ranks.rank,
        world=ranks.world,
        mined=mine(source, seed=seed) if data.mining else None,
        scene_distractors=data.scene_distractors,
    )
    return source, batches, validation


def saved_extent(config: Config, source: PatchSet) -> float:
    """Return the extent at which the trained descriptor is used, and therefore validated and saved."""
    return config.network.extent or source.extent


def _check_extent(validation_set: PatchSet, path: Path, extent: float) -> None:
    """Refuse validation patches of another width, which would select weights for the wrong use."""
    if validation_set.extent != extent:
        raise DataError(
            f"{path}: expected validation patches of the extent of the saved descriptor ({extent:g}), got "
            f"{validation_set.extent:g}. Build the validation set with --extent {extent:g}, or change network.extent."
        )


def build_regression_sample(config: Config) -> PatchSample | None:
    """Return the sample of the regression set, or None if the recipe has no such set."""
    regression_set = config.data.regression_set
    if regression_set is None:
        return None
    if config.network.init is None:
        raise DataError(f"data.regression_set: expected network.init too, got {regression_set} without it")
    return PatchSample.draw(open_set(regression_set))


def build_descriptor(config: Config) -> Descriptor:
    """Build the descriptor to train, with random weights or with those of `network.init`.

    Initial weights of the same kind and dimension bring their own architecture. A real descriptor also initialises
    a binary one of the same network, and a network with a last linear layer after `inner` dimensions, if it has as many
    dimensions. The layers that the two have in common are taken over, and the others have random weights. With
    `network.freeze_init`, only the others are trained.
    """
    section, settings = config.network, dict(config.network.settings)
    descriptor = Descriptor.build(section.name, section.kind, **settings)
    if section.init is None:
        for name in ("init_weight", "freeze_init"):
            if value := getattr(section, name):
                raise DataError(f"network.{name}: expected network.init too, got {str(value).lower()} without it")
        return descriptor
    init = Descriptor.load(section.init)
    assert init.spec.network is not None
    real_of_same_network = (init.spec.network, init.kind) == (section.name, "real")
    if real_of_same_network and (section.kind == "binary" or init.dim == settings.get("inner")):
        changes = {"dim", "inner", "dropout"}
    elif (init.kind, init.dim) == (descriptor.kind, descriptor.dim):
        # Dropout is a choice of the training, not of the architecture.
        changes = {"dropout"}
    else:
        raise DataError(
            f"{section.init}: expected {descriptor.dim} dimensions, {descriptor.kind}, as in the recipe, "
            f"got {init.dim}, {init.kind}; change network.dim and network.kind"
        )
    arguments = {
        name: settings.get(name, value) if name in changes else value for name, value in init.spec.arguments.items()
    }
    descriptor = Descriptor.build(init.spec.network, section.kind, **arguments)
    common = _take_over(init.network, descriptor.network)
    if section.freeze_init:
        _freeze(descriptor.network, common)
        if not any(parameter.requires_grad for parameter in descriptor.network.parameters()):
            raise DataError(
                f"network.freeze_init: expected a network with layers that {section.init} does not have, got no layer "
                "to train; change network.dim, network.inner or network.kind, or remove network.freeze_init"
            )
    descriptor.spec = descriptor.spec.model_copy(update={"extent": init.extent})
    descriptor.metadata |= {"ledger": init.metadata.get("ledger", []), "ratio": init.ratio}
    if "recipe" in init.metadata:
        descriptor.metadata["earlier_recipes"] = [*init.metadata.get("earlier_recipes", []), init.metadata["recipe"]]
    return descriptor


def _take_over(source: nn.Module, target: nn.Module) -> set[str]:
    """Copy the weights that have the same name and shape in both networks; return their names.

    The output layers may differ.
    """
    own = target.state_dict()
    given = source.state_dict().items()
    common = {name: weights for name, weights in given if name in own and own[name].shape == weights.shape}
    target.load_state_dict({**own, **common})
    return set(common)


def _freeze(network: nn.Module, names: set[str]) -> None:
    """Keep the layers with these weights as they are, including the statistics of batch normalisation."""
    for prefix, layer in network.named_modules():
        own = {f"{prefix}.{name}" for name in layer.state_dict()}
        if own and own <= names and not list(layer.children()):
            layer.requires_grad_(False).eval()


def build_loss(config: Config, ranks: Ranks) -> Loss:
    """Build the loss; with several ranks it spans the batch of all of them."""
    loss: Loss = config.loss.selected(**dict(config.loss.settings), across_ranks=ranks.several)
    return loss.to(ranks.device)


def load_teacher(config: Config, patch_size: int, ranks: Ranks) -> tuple[Descriptor | None, list[dict[str, Any]]]:
    """Load the teacher with the ledger of its training data; None and no ledger if the recipe has no teacher."""
    section = config.teacher
    if section.file is None:
        return None, []
    descriptor = Descriptor.load(section.file, device=ranks.device)
    if (descriptor.kind, descriptor.patch_size) != ("real", patch_size):
        raise DataError(
            f"{section.file}: expected a real-valued teacher for patches of {patch_size} pixels, got "
            f"{descriptor.kind}, {descriptor.patch_size} pixels; choose another teacher.file"
        )
    return descriptor, descriptor.metadata.get("ledger", [])


@dataclass(frozen=True)
class StepSchedule:
    """The schedule of a run, in steps or in seconds.

    With a number of steps, the learning rate depends on the step only, and a resumed run equals an uninterrupted one.
    With a time budget it depends on the training time, which differs between runs.
    """

    steps: int | None
    seconds: float | None
    steps_per_epoch: int
    schedule: ScheduleSection

    @classmethod
    def of(cls, schedule: ScheduleSection, steps_per_epoch: int) -> StepSchedule:
        """Return the schedule of a recipe, which has exactly one of epochs, steps and minutes."""
        given = [value for value in (schedule.epochs, schedule.steps, schedule.minutes) if value is not None]
        if len(given) != 1:
            raise ArgumentError(f"schedule: expected exactly one of epochs, steps and minutes, got {len(given)}")
        steps = round(schedule.epochs * steps_per_epoch) if schedule.epochs else schedule.steps
        seconds = None if schedule.minutes is None else 60 * schedule.minutes
        return cls(None if steps is None else max(1, steps), seconds, steps_per_epoch, schedule)

    def progress(self, step: int, seconds: float) -> float:
        """Return the share of the run that is done before a step, 0 to 1."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.seconds is not None
        return min(1.0, seconds / self.seconds)

    def rate(self, step: int, seconds: float) -> float:
        """Return the factor of the recipe's learning rate at a step.

        >>> StepSchedule.of(ScheduleSection(steps=4), 10).rate(1, 0.0)
        0.75
        """
        if self.schedule.kind == "linear":
            return 1 - self.progress(step, seconds)
        return float(self.schedule.factor ** int(step / self.steps_per_epoch / self.schedule.every))
