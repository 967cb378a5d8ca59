"""What a user may type for a descriptor."""

from __future__ import annotations

import pytest

from doap.baselines import BASELINES
from doap.cli.names import open_descriptors
from doap.descriptor import Descriptor
from doap.evaluation.controls import CONTROLS

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


def test_peers_and_controls_are_words_for_many():
    describers, files = open_descriptors(["sift", "peers", "controls"])
    assert list(describers) == list(dict.fromkeys(["sift", *BASELINES, *CONTROLS]))
    assert not files


def test_names_are_short_and_differ(weights, code):
    paths = [weights / folder / "best.safetensors" for folder in ("a", "b")]
    describers, files = open_descriptors([*map(str, paths), str(paths[0]), "orb", f"{code}:mean"])
    assert list(describers) == ["best", "best-2", "orb", "mean"]
    assert files == {"best": paths[0], "best-2": paths[1]}
