"""Statistics over scenes: means, intervals, and the split into validation and test."""

from pathlib import Path

import numpy as np
import pytest

from doap._support.errors import ArgumentError
from doap.evaluation.homography import area_under_recall
from doap.evaluation.scenes import draw_images, mean_of_scenes, scene_figure, split_scenes

SCENES = ["a"] * 30 + ["b"] * 5 + ["c"] * 10


def area(errors):
    return area_under_recall(errors.ravel(), 10)


@pytest.fixture
def errors():
    random = np.random.default_rng(0)
    return random.exponential([[5.0]] * 30 + [[1.0]] * 5 + [[20.0]] * 10, (45, 2))


def test_a_figure_is_the_mean_over_scenes_of_any_size(errors):
    by_scene = {"a": area(errors[:30]), "b": area(errors[30:35]), "c": area(errors[35:])}
    figure = scene_figure("AUC@10", SCENES, errors, area, 0)
    assert figure.total.value == pytest.approx(np.mean(list(by_scene.values())))
    assert mean_of_scenes(SCENES, errors, area) == pytest.approx(figure.total.value)
    assert {name: part.value for name, part in figure.parts.items()} == pytest.approx(by_scene)
    assert (figure.total.units, figure.parts["a"].units) == (3, 30)


def test_two_scenes_have_no_interval_however_many_pairs(errors):
    figure = scene_figure("AUC@10", SCENES[:35], errors[:35], area, 0)
    assert (figure.total.low, figure.total.high, figure.total.units) == (None, None, 2)
    assert figure.parts["a"].low is not None


def test_scenes_are_either_for_validation_or_for_the_test():
    assert split_scenes(["a", "b", "c"], " b ,") == (["b"], ["a", "c"])
    assert split_scenes(["a"], "") == ([], ["a"])
    assert split_scenes(["a", "b", "c"], "a", "c") == (["a"], ["c"])


@pytest.mark.parametrize(("validation", "test"), [("y,x,a", ""), ("a,b", ""), ("a", "a,b")])
def test_impossible_splits_are_refused(validation, test):
    with pytest.raises(ArgumentError):
        split_scenes(["a", "b"], validation, test)


def test_drawn_images_do_not_depend_on_the_others():
    paths = [Path(f"{number}.png") for number in range(50)]
    drawn = draw_images(paths, 10)
    assert draw_images([*paths[25:], *drawn], 10) == drawn
