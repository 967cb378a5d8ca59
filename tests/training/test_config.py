"""Recipes: every shipped one loads, unknown keys are named, and the command line has no defaults of its own."""

from pathlib import Path

import pytest

from doap.errors import ArgumentError, DataError
from doap.training.config import Config, read_recipe
from doap.training.schedule import StepSchedule

RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_says_what_it_is(path):
    config = read_recipe(path)
    assert "doap train" in config.about
    assert StepSchedule.of(config.schedule, steps_per_epoch=100)


def test_there_are_recipes():
    names = {path.stem for path in RECIPES}
    assert {"toy", "toy-binary", "ubc", "ubc-st", "ubc-binary", "ubc-binary-st", "hpatches-st-lm", "rome"} <= names


def write(tmp_path, text):
    (tmp_path / "r.toml").write_text(text)
    return tmp_path / "r.toml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[optimiser]\nmomentm = 1", "unknown key 'optimiser.momentm'; did you mean 'momentum'?"),
        ("[zzz]\na = 1", "unknown key 'zzz'; known are about, data, network"),
        ("[data]\nlist_size = 2", "data.batch_size: input should be greater than or equal to 6, got 2"),
        ("[loss]\nname = 'contrastive'", "loss.name"),
        ("[data", "expected TOML"),
    ],
)
def test_faults_are_told_in_the_words_of_the_recipe(tmp_path, text, message):
    with pytest.raises(DataError, match=r"r\.toml") as error:
        read_recipe(write(tmp_path, text))
    assert message in str(error.value)


def test_missing_recipe_is_named(tmp_path):
    with pytest.raises(DataError, match="expected a recipe, got nothing there"):
        read_recipe(tmp_path / "absent.toml")


def test_changes_go_on_top_of_the_file(tmp_path):
    path = write(tmp_path, "[run]\nseed = 3\nlog_every = 7")
    config = read_recipe(path, run={"seed": 5})
    assert (config.run.seed, config.run.log_every) == (5, 7)


def test_distance_and_bins_follow_from_the_loss_and_the_kind():
    assert (Config().distance, Config().bins) == ("squared", 8)
    assert Config(loss={"name": "hardest-triplet"}).distance == "euclidean"
    bits = Config(network={"kind": "binary"})
    assert (bits.distance, bits.bins) == ("hamming", None)


def test_a_recipe_may_say_distance_and_bins():
    config = Config(loss={"distance": "euclidean", "bins": 25})
    assert (config.distance, config.bins) == ("euclidean", 25)
    assert Config(loss={"distance": "squared"}).distance == "squared"


def test_linear_schedule_falls_to_zero_and_stepped_by_its_factor():
    linear = StepSchedule.of(Config(schedule={"steps": 10}).schedule, 5)
    assert [linear.rate(step, 0.0) for step in (0, 5, 10)] == [1.0, 0.5, 0.0]
    stepped = StepSchedule.of(Config(schedule={"epochs": 4, "kind": "stepped", "every": 2}).schedule, 5)
    assert stepped.steps == 20
    assert [stepped.rate(step, 0.0) for step in (0, 9, 10, 19)] == pytest.approx([1, 1, 0.1, 0.1])


def test_budget_of_time_goes_by_the_clock():
    plan = StepSchedule.of(Config(schedule={"minutes": 2}).schedule, 5)
    assert plan.steps is None
    assert plan.rate(999, 30.0) == pytest.approx(0.75)
    assert plan.progress(0, 500.0) == 1


@pytest.mark.parametrize("schedule", [{}, {"steps": 3, "epochs": 2}])
def test_one_length_must_be_given(schedule):
    with pytest.raises(ArgumentError, match="expected one of epochs, steps and minutes"):
        StepSchedule.of(Config(schedule=schedule).schedule, 5)
