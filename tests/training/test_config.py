"""Recipes: all files in recipes/ load, and errors name the key."""

import json
from pathlib import Path

import pytest

from doap._support.errors import ArgumentError, DataError
from doap.loss import LOSSES, ListwiseAP
from doap.training.config import Config, read_recipe
from doap.training.setup import StepSchedule

RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_has_a_command(path):
    config = read_recipe(path)
    assert "doap train" in config.about
    assert StepSchedule.of(config.schedule, steps_per_epoch=100)


@pytest.mark.parametrize(
    "content",
    [
        b"[data]\nbatch_size = 2",
        b"[loss]\nname = 'none'",
        b"[loss]\nbins = 0",
        b"[loss.settings]\nbins = 8",
        b"loss = 3",
        b"data = 3",
        b"[[data]]",
        b"[data",
        b"a =",
        b"about = '\xff'",
        "a = 1".encode("utf-16"),
        b"a = " + b"[" * 100_000,
        None,
    ],
)
def test_a_wrong_damaged_or_missing_recipe_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "r.toml").write_bytes(content)
    with pytest.raises(DataError):
        read_recipe(tmp_path / "r.toml", data={"train": "set"})


def test_the_default_distance_follows_from_the_loss_and_the_kind_and_a_recipe_may_set_it():
    assert Config().loss.settings == ListwiseAP().settings
    assert Config(loss={"distance": "euclidean", "bins": 25}).loss.settings == ListwiseAP.paper().settings
    for name in LOSSES:
        assert Config(network={"kind": "binary"}, loss={"name": name}).loss.settings.distance == "hamming"
    assert Config(network={"kind": "binary"}, loss={"distance": "squared"}).loss.settings.distance == "squared"


def test_a_resolved_recipe_is_flat_and_reads_back_as_itself():
    config = Config(network={"kind": "binary", "dim": 64}, sampler={"name": "sources"}, loss={"bins": 8})
    resolved = json.loads(config.model_dump_json())
    assert resolved["sampler"] == {"name": "sources", "sources_per_batch": 8}
    assert resolved["loss"]["distance"] == "hamming"
    assert resolved["network"]["dim"] == 64
    assert Config.model_validate(resolved) == config


def test_a_schedule_is_linear_to_zero_stepped_or_follows_the_clock():
    linear = StepSchedule.of(Config(schedule={"steps": 10}).schedule, 5)
    assert [linear.rate(step, 0.0) for step in (0, 5, 10)] == [1.0, 0.5, 0.0]
    stepped = StepSchedule.of(Config(schedule={"epochs": 4, "kind": "stepped", "every": 2}).schedule, 5)
    assert stepped.steps == 20
    assert [stepped.rate(step, 0.0) for step in (0, 9, 10, 19)] == pytest.approx([1, 1, 0.1, 0.1])
    clock = StepSchedule.of(Config(schedule={"minutes": 2}).schedule, 5)
    assert [clock.rate(999, seconds) for seconds in (30.0, 500.0)] == pytest.approx([0.75, 0])


@pytest.mark.parametrize("schedule", [{}, {"steps": 3, "epochs": 2}])
def test_exactly_one_length_must_be_given(schedule):
    with pytest.raises(ArgumentError):
        StepSchedule.of(Config(schedule=schedule).schedule, 5)
