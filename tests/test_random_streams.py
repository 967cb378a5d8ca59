"""Named random streams."""

from __future__ import annotations

import numpy as np
import pytest

from doap._support.errors import ArgumentError
from doap._support.random_streams import stream
from oracles.interpreter import run_python


def first(*arguments: int | str) -> int:
    return int(stream(*arguments).bit_generator.random_raw())  # type: ignore[arg-type]


def test_the_same_arguments_give_the_same_numbers() -> None:
    assert np.array_equal(stream(7, "epoch", 3).random(10), stream(7, "epoch", 3).random(10))


def test_a_process_with_another_hash_seed_gives_the_same_numbers() -> None:
    program = "from doap._support.random_streams import stream; print(stream(7, 'epoch', 3).bit_generator.random_raw())"
    assert int(run_python("-c", program, PYTHONHASHSEED="12345").stdout) == first(7, "epoch", 3)


def test_the_numbers_do_not_change_between_versions() -> None:
    assert first(0, "epoch", 0) == 13970911414229249164


def test_the_numbers_depend_on_seed_name_and_each_counter() -> None:
    arguments = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", 1), (0, "a", 0, 0), (0, "a", 0, 1), (0, "a", 1, 0)]
    assert len({first(*one) for one in arguments}) == len(arguments)


@pytest.mark.parametrize("arguments", [(-1, "a"), (0, "a", -1)])
def test_negative_seeds_and_counters_are_an_error(arguments: tuple[int, str]) -> None:
    with pytest.raises(ArgumentError, match="0 or more"):
        stream(*arguments)
