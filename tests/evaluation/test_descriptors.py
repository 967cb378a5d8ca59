"""Descriptors to evaluate are loaded by name and get short, unique names."""

from __future__ import annotations

import pytest

from doap._support.errors import DataError
from doap.baselines import BASELINES, rootsift
from doap.descriptor import SHIPPED, Descriptor
from doap.evaluation.controls import CONTROLS
from doap.evaluation.descriptors import open_candidates

CODE = """
def mean(patches):
    return patches.mean(dim=(2, 3))
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def weights(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        Descriptor.build(dim=16).save(tmp_path / folder / "best.safetensors")
    return tmp_path


def test_baselines_and_controls_are_words_for_many():
    opened = open_candidates(["sift", "baselines", "controls"])
    assert list(opened) == list(dict.fromkeys(["sift", *BASELINES, *CONTROLS]))
    assert not any(one.file for one in opened.values())


def test_names_are_short_and_unique(weights, code):
    paths = [weights / folder / "best.safetensors" for folder in ("a", "b")]
    opened = open_candidates([*map(str, paths), paths[0], "orb", f"{code}:mean"])
    assert list(opened) == ["best", "best-2", "orb", "mean"]
    assert {name: one.file for name, one in opened.items() if one.file} == {"best": paths[0], "best-2": paths[1]}


def test_a_shipped_descriptor_has_its_file():
    assert open_candidates("doap-128")["doap-128"].file == SHIPPED["doap-128"]


def test_describers_are_used_as_they_are():
    baseline, descriptor = rootsift(), Descriptor.build(dim=16)
    opened = open_candidates([baseline, descriptor, baseline])
    assert [(name, one.describer) for name, one in opened.items()] == [
        ("rootsift", baseline),
        ("descriptor", descriptor),
        ("rootsift-2", baseline),
    ]


def test_a_mapping_chooses_the_names(weights):
    opened = open_candidates({"mine": weights / "a" / "best.safetensors", "chance": "random", "theirs": rootsift()})
    assert list(opened) == ["mine", "chance", "theirs"]
    assert opened["mine"].file == weights / "a" / "best.safetensors"
    assert opened["chance"].describer.name == "random"


def test_unknown_names_are_refused():
    with pytest.raises(DataError, match="nobody: expected one of"):
        open_candidates(["sift", "nobody"])
