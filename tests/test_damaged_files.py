"""Damaged files of every format: one clear error, and never a path outside the folder.

`benchmarks/fuzz.py` reads many more of the same kind.
"""

import contextlib
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from doap._support.errors import DataError, DoapError
from doap.data.store import open_set
from oracles.file_samples import SAMPLES
from oracles.mutations import damage

for needed in ("faiss", "pycolmap"):
    pytest.importorskip(needed)

# These are read in a process of their own. Some damage lets it hang until its time is over.
INPUTS = {"colmap": 5, "colmap text": 5, "colmap database": 5}


@pytest.fixture(scope="module", params=SAMPLES)
def sample(request, tmp_path_factory):
    """A format and the folder of its sample."""
    folder = tmp_path_factory.mktemp("sample")
    SAMPLES[request.param].write(folder)
    return request.param, folder


def test_the_sample_is_accepted(sample):
    name, folder = sample
    SAMPLES[name].read(folder)


def test_a_damaged_file_is_accepted_or_refused_with_a_message(sample):
    name, folder = sample
    for number in range(INPUTS.get(name, 40)):
        generator = random.Random(f"test {name} {number}")
        path = SAMPLES[name].choose(folder, generator)
        content = path.read_bytes()
        path.write_bytes(damage(path.name, content, generator))
        with contextlib.suppress(DoapError):
            SAMPLES[name].read(folder)
        path.write_bytes(content)


def test_names_in_a_patch_set_are_valid_text(tmp_path):
    """Parquet stores bytes and does not check that they are UTF-8."""
    SAMPLES["set"].write(tmp_path)
    path = tmp_path / "set" / "groups.parquet"
    table = pq.read_table(path, memory_map=False)
    invalid = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    scenes = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), invalid, safe=False)
    column = table.schema.get_field_index("scene")
    pq.write_table(table.set_column(column, table.schema.field("scene"), scenes), path)
    with pytest.raises(DataError):
        open_set(tmp_path / "set")
