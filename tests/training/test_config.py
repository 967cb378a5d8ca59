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


def test_the_recipes_of_the_paper_exist():
    names = {path.stem for path in RECIPES}
    assert {"toy", "toy-binary", "ubc", "ubc-st", "ubc-binary", "ubc-binary-st", "rome"} <= names
    assert {"hpatches", "hpatches-st", "hpatches-st-lm", "rome-binary"} <= names


def write(tmp_path, text):
    (tmp_path / "r.toml").write_text(text)
    return tmp_path / "r.toml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[optimiser]\nmomentm = 1", "unknown key 'optimiser.momentm'; did you mean 'momentum'?"),
        ("[zzz]\na = 1", "unknown key 'zzz'; known keys are about, data, sampler, augmentation, network"),
        ("[data]\nbatch_size = 2", "data.batch_size: input should be greater than or equal to 6, got 2"),
        (
            "[loss]\nname = 'none'",
            "loss: name: expected one of listwise-ap, hardest-triplet or package.module:Class, got ",
        ),
        ("[loss]\nbinz = 8", "unknown key 'loss.binz'; did you mean 'bins'?"),
        ("[loss]\nbins = 0", "loss.bins: input should be greater than or equal to 1, got 0"),
        ("[loss]\nweight = 1", "unknown key 'loss.weight'; known keys are name, second_order, distance, bins"),
        ("[network]\ninitt = 'a'", "unknown key 'network.initt'; did you mean 'init'?"),
        ("[network]\ndimm = 8", "unknown key 'network.dimm'; did you mean 'dim'?"),
        (
            "[sampler]\nname = 'sources'\nsources_per_bach = 8",
            "unknown key 'sampler.sources_per_bach'; did you mean 'sources_per_batch'?",
        ),
        ("[loss.settings]\nbins = 8", "unknown key 'loss.settings'"),
        ("loss = 3", "loss: input should be a valid dictionary"),
        ("[data", "expected TOML"),
    ],
)
def test_errors_name_the_key_of_the_recipe(tmp_path, text, message):
    with pytest.raises(DataError, match=r"r\.toml") as error:
        read_recipe(write(tmp_path, text))
    assert message in str(error.value)


def test_a_missing_recipe_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no such recipe"):
        read_recipe(tmp_path / "absent.toml")


def test_changes_override_the_file(tmp_path):
    path = write(tmp_path, "[run]\nseed = 3\nlog_every = 7")
    config = read_recipe(path, run={"seed": 5})
    assert (config.run.seed, config.run.log_every) == (5, 7)


def loss_of(config):
    return LOSSES[config.loss.name](**dict(config.loss.settings))


def test_the_default_distance_follows_from_the_loss_and_the_kind():
    loss = loss_of(Config())
    assert loss.settings == ListwiseAP().settings
    assert loss_of(Config(loss={"name": "hardest-triplet"})).settings.distance == "euclidean"
    bits = loss_of(Config(network={"kind": "binary"}))
    assert bits.settings.distance == "hamming"
    assert loss_of(Config(network={"kind": "binary"}, loss={"name": "hardest-triplet"})).settings.distance == "hamming"


def test_a_recipe_may_set_distance_and_bins():
    loss = loss_of(Config(loss={"distance": "euclidean", "bins": 25}))
    assert loss.settings == ListwiseAP.paper().settings
    assert Config(network={"kind": "binary"}, loss={"distance": "squared"}).loss.settings.distance == "squared"


def test_a_resolved_recipe_is_flat_and_reads_back_as_itself():
    config = Config(network={"kind": "binary", "dim": 64}, sampler={"name": "sources"}, loss={"bins": 8})
    resolved = json.loads(config.model_dump_json())
    assert resolved["sampler"] == {"name": "sources", "sources_per_batch": 8}
    assert resolved["loss"]["distance"] == "hamming"
    assert resolved["network"]["dim"] == 64
    assert Config.model_validate(resolved) == config


def test_linear_schedule_falls_to_zero_and_stepped_schedule_by_its_factor():
    linear = StepSchedule.of(Config(schedule={"steps": 10}).schedule, 5)
    assert [linear.rate(step, 0.0) for step in (0, 5, 10)] == [1.0, 0.5, 0.0]
    stepped = StepSchedule.of(Config(schedule={"epochs": 4, "kind": "stepped", "every": 2}).schedule, 5)
    assert stepped.steps == 20
    assert [stepped.rate(step, 0.0) for step in (0, 9, 10, 19)] == pytest.approx([1, 1, 0.1, 0.1])


def test_time_budget_follows_the_clock():
    plan = StepSchedule.of(Config(schedule={"minutes": 2}).schedule, 5)
    assert plan.steps is None
    assert plan.rate(999, 30.0) == pytest.approx(0.75)
    assert plan.progress(0, 500.0) == 1


@pytest.mark.parametrize("schedule", [{}, {"steps": 3, "epochs": 2}])
def test_exactly_one_length_must_be_given(schedule):
    with pytest.raises(ArgumentError, match="expected exactly one of epochs, steps and minutes"):
        StepSchedule.of(Config(schedule=schedule).schedule, 5)


@pytest.mark.parametrize(
    "content", [b"about = '\xff'", "a = 1".encode("utf-16"), b"a = " + b"[" * 100_000, b"data = 3", b"[[data]]", b"a ="]
)
def test_a_damaged_recipe_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / "r.toml").write_bytes(content)
    with pytest.raises(DataError, match=r"r\.toml: "):
        read_recipe(tmp_path / "r.toml", data={"train": "set"})
