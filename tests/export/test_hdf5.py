"""Files in the format HDF5: on a full disk, while they are open, and after they are closed."""

import numpy as np
import pytest

from doap.export.hdf5 import Group, add_groups, copy_groups, read_contents
from oracles.full_disk import full_disk

h5py = pytest.importorskip("h5py")


def groups(count=8):
    return (Group(str(number), {"values": np.arange(5000) + number}, ["checksum"]) for number in range(count))


@pytest.mark.parametrize("limit", [100, 2_000, 45_000, 180_000, 320_000])
def test_a_full_disk_raises_one_error_and_leaves_no_file_that_is_accepted(tmp_path, limit):
    path = tmp_path / "a.h5"
    with full_disk(limit), pytest.raises(OSError, match="File too large"):
        add_groups(path, groups(), {})
    assert read_contents(path) is None


def test_a_full_disk_while_groups_are_copied_raises_one_error(tmp_path):
    add_groups(tmp_path / "a.h5", groups(), {})
    with full_disk(100_000), pytest.raises(OSError, match="File too large"):
        copy_groups(tmp_path / "a.h5", tmp_path / "b.h5", ["0", "1", "2", "3"])


def test_a_file_that_is_open_for_writing_is_not_accepted(tmp_path):
    path = tmp_path / "a.h5"
    add_groups(path, [], {})
    with h5py.File(path, "r+", libver="latest") as file:
        file["values"] = np.arange(10)
        file.flush()
        assert read_contents(path) is None
    assert read_contents(path) == ("{}", {})


def test_the_file_is_complete_after_each_group(tmp_path):
    path = tmp_path / "a.h5"
    found = []

    def observed():
        for group in groups(3):
            found.append(list(read_contents(path).groups))
            yield group

    add_groups(path, observed(), {"format": 1})
    assert found == [[], ["0"], ["0", "1"]]
    copy_groups(path, tmp_path / "b.h5", ["0", "2"])
    assert read_contents(tmp_path / "b.h5") == ('{"format": 1}', {"0": '["checksum"]', "2": '["checksum"]'})
    with h5py.File(tmp_path / "b.h5") as file:
        assert (list(file), file["2/values"][0]) == (["0", "2"], 2)
