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
INPUTS = {"colmap": 5, "colmap text": 5}


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


def test_an_index_does_not_refer_to_files_of_other_folders(tmp_path):
    SAMPLES["index"].write(tmp_path)
    meta = json.loads((tmp_path / "index" / "meta.json").read_text())
    meta["files"]["images"]["name"] = "../features/images-000001.parquet"
    (tmp_path / "index" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DataError):
        Index(tmp_path / "index")


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_lists_of_an_index_are_those_in_its_metadata(in_memory, tmp_path):
    SAMPLES["index"].write(tmp_path)
    path = tmp_path / "index" / "meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps(meta | {"index": meta["index"] | {"kind": "ivf", "lists": 3, "probes": 1}}))
    with pytest.raises(DataError):
        Index(tmp_path / "index", in_memory=in_memory).search(np.zeros((1, 16), np.float32), 1)


def test_names_in_an_index_are_valid_text(tmp_path):
    """Parquet stores bytes and does not check that they are UTF-8."""
    SAMPLES["index"].write(tmp_path)
    index = Index(tmp_path / "index")
    path = tmp_path / "index" / index.meta["files"]["images"]["name"]
    name = index.images.names[0].encode()
    # The file has a copy of the name in its statistics, and no checksums.
    path.write_bytes(path.read_bytes().replace(name, b"\xff" * len(name)))
    with pytest.raises(DataError):
        Index(tmp_path / "index")


def test_images_of_an_index_have_as_many_descriptors_as_its_files(tmp_path):
    SAMPLES["index"].write(tmp_path)
    path = tmp_path / "index" / "images-000001.parquet"
    table = pq.read_table(path)
    column = table.schema.get_field_index("descriptors")
    counts = pa.array([*table["descriptors"].to_pylist()[:-1], 2**31 - 1], pa.int32())
    pq.write_table(table.set_column(column, "descriptors", counts), path)
    # The size of a file is checked first.
    meta = json.loads((tmp_path / "index" / "meta.json").read_text())
    meta["files"]["images"]["bytes"] = path.stat().st_size
    (tmp_path / "index" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DataError):
        Index(tmp_path / "index")


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


@pytest.mark.parametrize(("first_ids"), [[0, 19], [0, None], [-1, 30]], ids=["overlapping", "missing", "negative"])
def test_the_ids_of_an_image_in_an_index_are_its_own(first_ids, tmp_path):
    SAMPLES["index"].write(tmp_path)
    path = tmp_path / "index" / "images-000001.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(2, "first_id", pa.array(first_ids, pa.int64())), path)
    meta = json.loads((tmp_path / "index" / "meta.json").read_text())
    meta["files"]["images"]["bytes"] = path.stat().st_size
    (tmp_path / "index" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DataError):
        Index(tmp_path / "index")
