"""Named random streams."""

import pytest

from doap._support.errors import ArgumentError
from doap._support.random_streams import stream


def first(*arguments):
    return int(stream(*arguments).bit_generator.random_raw())  # type: ignore[arg-type]


def test_the_numbers_do_not_change_between_versions_and_processes():
    assert first(0, "epoch", 0) == 13970911414229249164


def test_the_numbers_depend_on_seed_name_and_each_counter():
    arguments = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", 1), (0, "a", 0, 0), (0, "a", 0, 1), (0, "a", 1, 0)]
    assert len({first(*one) for one in arguments}) == len(arguments)


@pytest.mark.parametrize("arguments", [(-1, "a"), (0, "a", -1)])
def test_negative_seeds_and_counters_are_an_error(arguments):
    with pytest.raises(ArgumentError):
        stream(*arguments)
