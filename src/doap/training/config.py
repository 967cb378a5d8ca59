"""The recipe of a training run: the schema of the TOML files in `recipes/` and the only home of its defaults.

A recipe holds the differences from the defaults. The sections `[sampler]`, `[network]` and `[loss]` select a class of a
registry by `name`, or a class of your own package as `package.module:Class`; their other keys are the `Settings` of
that class.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from doap._support.device import Precision
from doap._support.errors import ArgumentError, DataError
from doap._support.settings import UNKNOWN_NAME, StrictModel, explain, select
from doap.data.augment import Augmentation
from doap.data.sampler import SAMPLERS, Sampler
from doap.loss import LOSSES, Loss
from doap.networks import NETWORKS, PatchNetwork
from doap.types import Kind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class DataSection(StrictModel):
    """`[data]`: patch sets and batches."""

    train: Path | None = Field(None, description="patch-group set to train on; `doap train --data`")
    validation: Path | None = Field(None, description="set to validate on; None holds out scenes of the training set")
    regression_set: Path | None = Field(None, description="set on which fine-tuning must not lose mAP")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of the groups to hold out without a validation set")
    batch_size: int = Field(1024, ge=6, description="M, maximum number of patches per batch, over all ranks")
    per_group: int = Field(2, ge=2, description="maximum number of patches per group in a batch")
    mining: bool = Field(False, description="label mining: similar groups of a scene ignore each other")
    scene_distractors: bool = Field(True, description="other groups of the same scene are distractors")
    workers: int = Field(0, ge=0, description="data-loading processes; they do not change the batches")


class _Registered(StrictModel):
    """A section whose `name` selects a class of a registry and whose other keys are the settings of that class."""

    registry: ClassVar[Mapping[str, Any]]
    base: ClassVar[type]
    name: str
    settings: StrictModel

    @property
    def selected(self) -> Any:
        """The selected class."""
        return select(self.registry, self.name, self.base)

    @classmethod
    def settings_model(cls, values: Mapping[str, Any]) -> type[StrictModel]:
        """The settings of the class that the values of a section select."""
        name = str(values.get("name", cls.model_fields["name"].default))
        model: type[StrictModel] = select(cls.registry, name, cls.base).Settings
        return model

    @model_validator(mode="before")
    @classmethod
    def _validate_settings(cls, values: Any) -> Any:
        if not isinstance(values, dict) or isinstance(values.get("settings"), StrictModel):
            return values
        own = {key: value for key, value in values.items() if key in cls.model_fields and key != "settings"}
        others = {key: value for key, value in values.items() if key not in own}
        try:
            return {**own, "settings": cls.settings_model(values).model_validate(others)}
        except ArgumentError as error:
            raise PydanticCustomError(UNKNOWN_NAME, "name: {reason}", {"reason": str(error)}) from error

    @model_serializer
    def _flatten(self) -> dict[str, Any]:
        own = {key: value for key, value in self if key != "settings"}
        return {**own, **dict(self.settings)}


class SamplerSection(_Registered):
    """`[sampler]`: the groups that form a batch; see `doap.data.sampler`."""

    registry = SAMPLERS
    base = Sampler
    name: str = Field("groups", description="name in SAMPLERS, or package.module:Class")
    settings: StrictModel = SAMPLERS["groups"].Settings()


class NetworkSection(_Registered):
    """`[network]`: the network, and the weights it starts from."""

    registry = NETWORKS
    base = PatchNetwork
    name: str = Field("l2net", description="name in NETWORKS, or package.module:Class")
    kind: Kind = Field("real", description="real for unit vectors, binary for bits")
    settings: StrictModel = NETWORKS["l2net"].Settings()
    init: Path | None = Field(None, description="initial weights: a file, or a shipped name such as doap-128")
    init_weight: float = Field(0.0, ge=0, lt=1, description="share of the initial weights in the saved average")
    freeze_init: bool = Field(False, description="train only the layers that the initial weights do not have")
    extent: float | None = Field(
        None, gt=0, description="extent of the saved descriptor and of validation; None for that of the training set"
    )


class LossSection(_Registered):
    """`[loss]`: the loss; binary networks use the Hamming distance unless the recipe sets another."""

    registry = LOSSES
    base = Loss
    name: str = Field("listwise-ap", description="name in LOSSES, or package.module:Class")
    second_order: float = Field(0.0, ge=0, description="weight of the second-order similarity term (SOSNet)")
    settings: StrictModel = LOSSES["listwise-ap"].Settings()


class TeacherSection(StrictModel):
    """`[teacher]`: a descriptor whose similarities the network learns too (distillation)."""

    file: Path | None = Field(
        None, description="real-valued descriptor: a file, or a shipped name; None for no teacher"
    )
    weight: float = Field(10.0, gt=0, description="weight of the mean squared difference of cosine similarities")


class OptimiserSection(StrictModel):
    """`[optimiser]`: stochastic gradient descent (paper, appendix D)."""

    # The paper's 0.1 does not carry over: the gradient of TALR's layer lacks a factor 2 in the cross-bin terms.
    learning_rate: float = Field(3.0, gt=0, description="at batch size 1024; scaled in proportion to the batch size")
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)


class ScheduleSection(StrictModel):
    """`[schedule]`: length of the run, as one of epochs, steps and minutes, and decay of the learning rate."""

    epochs: float | None = Field(None, gt=0)
    steps: int | None = Field(None, gt=0)
    minutes: float | None = Field(None, gt=0, description="wall-clock time")
    kind: Literal["linear", "stepped"] = Field("linear", description="linear to zero, or stepped")
    every: float = Field(10, gt=0, description="stepped: epochs between two steps")
    factor: float = Field(0.1, gt=0, lt=1, description="stepped: factor of each step")


class RunSection(StrictModel):
    """`[run]`: seed, precision, logging and checkpoints."""

    seed: int = Field(0, ge=0)
    precision: Precision = Field("auto", description="arithmetic of the network")
    micro_batch: int | None = Field(None, ge=2, description="patches per forward pass; None for the whole batch")
    log_every: int = Field(20, ge=1)
    validate_every: int = Field(200, ge=1)
    checkpoint_every: int = Field(100, ge=1)


class Config(StrictModel):
    """A complete recipe.

    >>> config = Config(network={"kind": "binary", "dim": 256}, schedule={"steps": 100})
    >>> config.loss.settings.distance, config.data.batch_size
    ('hamming', 1024)
    """

    about: str = Field("", description="command, hardware, duration and expected result")
    data: DataSection = DataSection()
    sampler: SamplerSection = SamplerSection()
    augmentation: Augmentation = Augmentation()
    network: NetworkSection = NetworkSection()
    loss: LossSection = LossSection()
    teacher: TeacherSection = TeacherSection()
    optimiser: OptimiserSection = OptimiserSection()
    schedule: ScheduleSection = ScheduleSection()
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _use_hamming_for_bits(self) -> Config:
        settings = self.loss.settings
        open_distance = "distance" in type(settings).model_fields and "distance" not in settings.model_fields_set
        if self.network.kind == "binary" and open_distance:
            hamming = settings.model_copy(update={"distance": "hamming"})
            object.__setattr__(self, "loss", self.loss.model_copy(update={"settings": hamming}))
        return self


def read_recipe(path: str | Path, **changes: dict[str, Any]) -> Config:
    """Read a recipe from a TOML file; an unknown key is an error that suggests the nearest known key.

    Args:
        path: The TOML file.
        changes: Values that override those of the file, by section, such as `data={"train": "my.patches"}`.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such recipe; see recipes/ for examples")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    # A file that is not UTF-8, and nested lists that exceed the recursion limit.
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected TOML, got {error}") from error
    for section, fields in changes.items():
        if not isinstance(given := values.get(section, {}), dict):
            raise DataError(f"{path}: {section}: expected a section [{section}], got {given!r}")
        values[section] = {**given, **fields}
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        known = [] if fault["type"] == UNKNOWN_NAME else _known_keys(str(fault["loc"][0]), values)
        raise DataError(f"{path}: {explain(error, known)}") from error


def _known_keys(section: str, values: Mapping[str, Any]) -> list[str]:
    """Known keys of a section of a recipe; the sections themselves if there is no such section."""
    if section not in Config.model_fields:
        return list(Config.model_fields)
    model: Any = Config.model_fields[section].annotation
    if issubclass(model, _Registered) and isinstance(values[section], dict):
        own = [key for key in model.model_fields if key != "settings"]
        return [*own, *model.settings_model(values[section]).model_fields]
    return list(getattr(model, "model_fields", ()))
