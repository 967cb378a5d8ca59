"""A loss, network or sampler of your own package trains from a recipe."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

import doap
from doap._support.errors import DataError
from doap._support.random_streams import stream
from doap._support.settings import StrictModel
from doap.data.sampler import Integers, Sampler
from doap.loss import Loss
from doap.networks import PatchNetwork
from doap.training import read_log, train
from doap.types import Kind, Relation

PATCHES = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))


class Spread(Loss):
    """Move all outputs towards one value."""

    class Settings(StrictModel):
        margin: float = Field(1.0, gt=0)

    settings: Settings

    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        return (descriptors - self.settings.margin).square().mean()

    def metrics(self, loss: float) -> dict[str, float]:
        return {"margin": self.settings.margin}


class Small(PatchNetwork):
    """One convolution and one linear layer."""

    class Settings(StrictModel):
        dim: int = Field(32, ge=8)
        width: int = Field(4, ge=1)

    patch_size = 32

    def __init__(self, kind: Kind = "real", **settings: object) -> None:
        super().__init__()
        chosen = self.Settings.model_validate(settings)
        self.kind = kind
        self.layers = nn.Sequential(
            nn.Conv2d(1, chosen.width, 8, 8), nn.ReLU(), nn.Flatten(), nn.Linear(chosen.width * 16, chosen.dim)
        )

    def forward(self, patches: Tensor) -> Tensor:
        activations: Tensor = self.layers(patches)
        return activations if self.kind == "binary" else normalize(activations)


class Pairs(Sampler):
    """A few random groups."""

    class Settings(StrictModel):
        groups_per_batch: int = Field(8, ge=2)

    settings: Settings

    def _prepare(self) -> None:
        self.steps_per_epoch = len(self.groups) // self.settings.groups_per_batch

    def choose(self, step: int) -> Integers:
        drawn = stream(self.seed, "pairs", step).choice(self.groups, self.settings.groups_per_batch, replace=False)
        return np.sort(drawn)


def run(tmp_path, patches, sections):
    """Train three steps with a recipe; return the events."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f"[data]\ntrain = {str(patches)!r}\nbatch_size = 64\n[schedule]\nsteps = 3\n[run]\nlog_every = 1\n{sections}"
    )
    events: list[dict[str, object]] = []
    best = train(recipe, tmp_path / "run", device="cpu", on_event=events.append)
    assert best == tmp_path / "run" / "best.safetensors"
    assert events == read_log(tmp_path / "run" / "log.jsonl")
    return events


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Create an importable module with the classes of this file; return its name."""
    (tmp_path / "elsewhere").mkdir()
    code = "from test_registries import Spread, Pairs, Small\nnumber = 5\n"
    (tmp_path / "elsewhere" / "my_package.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setitem(sys.modules, "test_registries", sys.modules[__name__])
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    return "my_package"


def test_classes_of_another_package_train_from_a_recipe_and_load_by_name(patches, tmp_path, package, monkeypatch):
    sections = (
        f"[network]\nname = '{package}:Small'\nwidth = 2\n[loss]\nname = '{package}:Spread'\nmargin = 0.5\n"
        f"[sampler]\nname = '{package}:Pairs'\ngroups_per_batch = 4\n"
    )
    events = run(tmp_path, patches, sections)
    assert [event["margin"] for event in events if event["kind"] == "train"] == [0.5] * 3
    path = tmp_path / "run" / "best.safetensors"
    descriptor = doap.Descriptor.load(path)
    assert isinstance(descriptor.network, Small)
    assert descriptor.spec.network == "my_package:Small"
    assert descriptor.metadata["recipe"]["sampler"] == {"name": "my_package:Pairs", "groups_per_batch": 4}
    init = f"[network]\nname = '{package}:Small'\ninit = {str(path)!r}\n"
    run(tmp_path / "run", patches, init)
    # A file of weights imports no code; a module given as an object still receives the weights.
    monkeypatch.delitem(sys.modules, package)
    with pytest.raises(DataError):
        doap.load(path)
    assert package not in sys.modules
    given = Small(width=2)
    assert torch.equal(
        doap.Descriptor.load(path, network=given).describe_patches(PATCHES), descriptor.describe_patches(PATCHES)
    )


@pytest.mark.parametrize(
    "sections",
    [
        "name = 'my_package:Missing'",
        "name = 'my_package:number'",
        "name = 'my_package:Small'",
        "name = 'no_package.losses:Mine'",
        "name = 'broken_package:Mine'",
        "name = ':Mine'",
        "name = 'Spread'",
        "name = 'my_package:Spread'\nmargn = 0.5",
        "name = 'my_package:Spread'\nmargin = -1",
    ],
)
def test_a_class_or_setting_that_cannot_be_used_is_refused(patches, tmp_path, package, sections):
    (tmp_path / "elsewhere" / "broken_package.py").write_text("1 / 0")
    with pytest.raises(DataError):
        run(tmp_path, patches, f"[loss]\n{sections}\n")


def test_the_fingerprint_of_a_network_of_your_own_depends_on_its_code(package, monkeypatch):
    descriptor = doap.Descriptor.build(f"{package}:Small")
    before = descriptor.fingerprint()
    monkeypatch.setattr(Small, "forward", lambda self, patches: self.layers(-patches))
    assert descriptor.fingerprint() != before
