"""The recipe of a training run: the schema, and the only home of its defaults.

A TOML file holds the differences. Unknown keys fail and name the nearest known one.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from doap.data.sampler import GroupSampler, MixedSampler, RomeSampler, Sampler, SceneSampler, SourceSampler
from doap.errors import DataError
from doap.functional.average_precision import APForm
from doap.functional.distance import Distance
from doap.types import Kind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SAMPLERS: dict[str, type[Sampler]] = {
    "groups": GroupSampler,
    "mixed": MixedSampler,
    "sources": SourceSampler,
    "sequences": SceneSampler,
    "rome": RomeSampler,
}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Data(_Section):
    """Where the patches come from and how lists are made of them."""

    train: Path | None = Field(None, description="a patch-group set; the command line's --data fills it in")
    validation: Path | None = Field(None, description="another set; None holds places of the training set out")
    general: Path | None = Field(None, description="a set that adapting must not harm: a loss there is warned of")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of the groups in places held out, if no other set")
    batch_size: int = Field(1024, ge=6, description="M, patches of a list over all ranks")
    per_group: int = Field(2, ge=2, description="patches of one group in a list, at most")
    sampler: Literal["groups", "mixed", "sources", "sequences", "rome"] = "groups"
    tracks_share: float = Field(0.5, gt=0, lt=1, description="for the sampler `mixed`: tracks in a list")
    sources_per_batch: int = Field(8, ge=1, description="for the sampler `sources`: photos or models in a list")
    scenes_per_batch: int = Field(2, ge=1, description="for the sampler `sequences`")
    mining: bool = Field(False, description="label mining: in-sequence look-alikes are ignored")
    augment: bool = Field(True, description="flips and quarter turns, shared by a group")
    gain: float = Field(0.0, ge=0, le=1, description="random gain of each patch")
    offset: float = Field(0.0, ge=0, le=1, description="random offset of each patch")
    noise: float = Field(0.0, ge=0, description="of position, scale and angle of each patch")
    blur: float = Field(0.0, ge=0, description="of each patch, at most, in pixels")
    grain: float = Field(0.0, ge=0, description="noise of its pixels, at most")
    jpeg: float = Field(0.0, ge=0, le=1, description="its compression, at most; 1 is JPEG's quality 5")
    workers: int = Field(0, ge=0, description="processes that prepare lists; lists do not depend on it")


class Network(_Section):
    """What is trained."""

    name: Literal["l2net", "l2net-st"] = "l2net"
    kind: Kind = "real"
    dim: int = Field(128, ge=8)
    dropout: float = Field(0.1, ge=0, lt=1)
    inner: int | None = Field(None, ge=8, description="dimensions before a last linear layer, if there is one")
    start: Path | None = Field(None, description="weights to start from; of `inner` real values, all but that layer")
    kept: float = Field(0.0, ge=0, lt=1, description="share of the start in what is judged and saved; 0.5 for the mean")


class Loss(_Section):
    """What is minimised; distance and bins follow from the loss and the kind of descriptor unless they are given."""

    name: Literal["listwise-ap", "hardest-triplet"] = "listwise-ap"
    distance: Distance | None = None
    bins: int | None = Field(None, ge=1, description="the paper has 25 on Euclidean distances")
    initial_bins: int | None = Field(None, ge=1, description="at the start, on the way to `bins` at the end")
    form: APForm = "simplified"
    final_slope: float = Field(1.0, ge=1, description="for bits: tanh(slope·x), from 1 to this at the end")
    signs: bool = Field(False, description="for bits: rank by their signs, with gradients as if by tanh")
    margin: float = Field(1.0, gt=0, description="of the triplet loss")


class Optimiser(_Section):
    """Stochastic gradient descent (paper, appendix D)."""

    # The paper's 0.1 does not carry over: the gradient of its released layer lacks a factor 2 in the cross-bin terms.
    learning_rate: float = Field(3.0, gt=0, description="at M = 1024; scaled in proportion to the list")
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)


class Schedule(_Section):
    """How long, and how the learning rate falls."""

    epochs: float | None = Field(None, gt=0)
    steps: int | None = Field(None, gt=0, description="instead of epochs")
    minutes: float | None = Field(None, gt=0, description="instead of both: a budget of wall-clock time")
    kind: Literal["linear", "stepped"] = "linear"
    every: float = Field(10, gt=0, description="stepped: epochs between two steps")
    factor: float = Field(0.1, gt=0, lt=1, description="stepped: what each step leaves of the rate")


class Run(_Section):
    """How it is run."""

    seed: int = Field(0, ge=0)
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    compile: bool = Field(False, description="torch.compile; worth its half minute on long runs")
    piece: int | None = Field(None, ge=2, description="patches the network sees at once; None is the whole list")
    log_every: int = Field(20, ge=1)
    validate_every: int = Field(200, ge=1)
    checkpoint_every: int = Field(100, ge=1)
    tensorboard: bool = False


class Config(_Section):
    """A whole recipe."""

    about: str = Field("", description="command, hardware, hours, expected result")
    data: Data = Data()
    network: Network = Network()
    loss: Loss = Loss()
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()
    run: Run = Run()

    @property
    def distance(self) -> Distance:
        """The loss's distance: the recipe's, or Hamming for bits and squared for real values (docs/training.md)."""
        usual: Distance = "squared" if self.loss.name == "listwise-ap" else "euclidean"
        return self.loss.distance or ("hamming" if self.network.kind == "binary" else usual)

    @property
    def bins(self) -> int | None:
        """Bins of the listwise loss: the recipe's, or 8 for real values, and one per bit (None) for Hamming."""
        return self.loss.bins or (None if self.distance == "hamming" else 8)


def read_recipe(path: Path, **changes: dict[str, Any]) -> Config:
    """A recipe from its TOML file, with changes to its sections on top, such as `data={"train": …}`."""
    if not path.is_file():
        raise DataError(f"{path}: expected a recipe, got nothing there; recipes/ has some")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: expected TOML, got {error}") from error
    for section, fields in changes.items():
        values[section] = {**values.get(section, {}), **fields}
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{path}: {_explain([str(part) for part in first['loc']], first)}") from error


def _explain(location: list[str], error: Any) -> str:
    """One fault of a recipe in the words of its keys."""
    where = ".".join(location)
    if error["type"] != "extra_forbidden":
        return f"{where}: {error['msg'][0].lower()}{error['msg'][1:]}, got {error['input']!r}"
    section: Any = Config
    for part in location[:-1]:
        section = section.model_fields[part].annotation
    near = difflib.get_close_matches(location[-1], section.model_fields, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(section.model_fields)}"
    return f"unknown key {where!r}{hint}"
