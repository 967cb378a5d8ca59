"""Files in the format HDF5: on a full disk, while they are open, and after they are closed."""

import numpy as np
import pytest

from doap.export.hdf5 import ATTRIBUTE, read_contents, write_file
from oracles.forked import run_forked

h5py = pytest.importorskip("h5py")

FULL_DISK = """
import gc, sys
from pathlib import Path
import numpy as np
from doap.export.hdf5 import write_file
from oracles.full_disk import full_disk

path, limit, checked = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
with full_disk(limit):
    try:
        with write_file(path, "w") as (file, check):
            for number in range(8):
                group = file.create_group(str(number))
                group["values"] = np.arange(5000)
                assert group["values"][-1] == 4999
                if checked:
                    check()
    except OSError as error:
        print(error.strerror)
    gc.collect()
"""


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("limit", [100, 2_000, 45_000, 180_000, 320_000])
def test_a_full_disk_raises_one_error_and_leaves_no_file_that_is_accepted(tmp_path, limit, checked):
    path = tmp_path / "a.h5"
    ran = run_forked(FULL_DISK, path, limit, checked)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "File too large\n", "")
    assert read_contents(path) is None


def test_an_open_file_is_not_accepted(tmp_path):
    path = tmp_path / "a.h5"
    for mode, name in (("w", "first"), ("r+", "second")):
        with write_file(path, mode) as (file, _):
            file.attrs[ATTRIBUTE] = name
            file.flush()
            assert read_contents(path) is None
        assert read_contents(path) == (name, {})


def test_h5py_reads_what_was_written_and_changed(tmp_path):
    path = tmp_path / "a.h5"
    with write_file(path, "w") as (file, _):
        file["removed"] = np.arange(100_000)
        file["group/values"] = np.arange(10)
    with write_file(path, "r+") as (file, _):
        del file["removed"]
        file["group/values"][3] = -1
    with h5py.File(path) as file:
        assert (list(file), file["group/values"][()].tolist()) == (["group"], [0, 1, 2, -1, 4, 5, 6, 7, 8, 9])
