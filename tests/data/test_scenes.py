"""Scenes held out of training."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doap._support.errors import DataError
from doap.data.scenes import hold_out
from oracles.memory_source import memory_source


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=40).filter(lambda ids: len(set(ids)) > 1), st.floats(0.01, 0.99)
)
def test_whole_scenes_are_held_out_and_some_are_left(scenes, share):
    source = memory_source([2] * len(scenes), scenes)
    held_out = hold_out(source, share, seed=0)
    assert 0 < held_out.sum() < len(held_out)
    assert not set(source.scene_ids[held_out]) & set(source.scene_ids[~held_out])


def test_the_share_is_reached_with_as_few_scenes_as_possible():
    source = memory_source([2] * 100, [number // 10 for number in range(100)])
    assert hold_out(source, 0.25, seed=0).sum() == 30
    assert np.array_equal(hold_out(source, 0.25, seed=0), hold_out(source, 0.25, seed=0))


def test_one_scene_cannot_be_split():
    with pytest.raises(DataError, match="expected two scenes or more to hold one out, got 1"):
        hold_out(memory_source([2] * 4, [0] * 4), 0.1, seed=0)
