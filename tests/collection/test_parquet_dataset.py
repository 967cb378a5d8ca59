"""A feature set is a Parquet dataset: other programs open the folder and decode what `FeatureSet` reads."""

import numpy as np
import pyarrow.dataset
import pytest

from doap._support.files import OutputLock, atomic_write
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import REMOVED, FailedImage, FeatureSet, PartWriter, StoredImage, make_table
from oracles.feature_sets import random_features

INFO = ExtractorInfo("this", "some", "sift", 6.0, 100, "real", 32, "float16")
NAMES = ["a.png", "folder/b.png", "c.png"]


def write(folder, images, info=INFO):
    with PartWriter(folder, info) as writer:
        writer.add(make_table(images, info))


@pytest.fixture
def features(tmp_path):
    """A set with a changed image, a removed one, a damaged one and one without keypoints."""
    folder = tmp_path / "features"
    first = {name: random_features(seed, 5) for seed, name in enumerate([*NAMES, "gone.png"])}
    write(folder, [StoredImage(name, "old", one) for name, one in first.items()])
    write(folder, [FailedImage("damaged.png", "x", "truncated"), FailedImage("gone.png", "", REMOVED)])
    write(folder, [StoredImage("a.png", "new", random_features(7, 9)), StoredImage("empty", "", random_features(8, 0))])
    return folder


def read_pandas(folder):
    pandas = pytest.importorskip("pandas")
    rows = pandas.read_parquet(folder).sort_values("run").drop_duplicates("name", keep="last")
    return rows[rows["error"].isna()].to_dict("records")


def read_pyarrow(folder):
    newest = {row["name"]: row for row in sorted(pyarrow.dataset.dataset(folder).to_table().to_pylist(), key=by_run)}
    return [row for row in newest.values() if row["error"] is None]


def by_run(row):
    return row["run"]


def read_duckdb(folder):
    duckdb = pytest.importorskip("duckdb")
    newest = f"from '{folder}/*.parquet' qualify row_number() over (partition by name order by run desc) = 1"
    found = duckdb.sql(f"from ({newest}) where error is null")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def read_polars(folder):
    polars = pytest.importorskip("polars")
    rows = polars.read_parquet(f"{folder}/*.parquet").sort("run").unique("name", keep="last")
    return rows.filter(polars.col("error").is_null()).to_dicts()


@pytest.mark.parametrize("read", [read_pandas, read_pyarrow, read_duckdb, read_polars])
def test_other_programs_read_what_doap_reads(read, features):
    expected = {image.name: image for image in FeatureSet(features).stream()}
    rows = {row["name"]: row for row in read(features)}
    assert sorted(rows) == sorted(expected) == ["a.png", "c.png", "empty", "folder/b.png"]
    for name, row in rows.items():
        stored = expected[name].features
        assert (row["checksum"], row["height"], row["width"]) == (expected[name].checksum, *stored.image_size)
        frames = np.asarray(row["frames"], np.float32).reshape(-1, 2, 3)
        np.testing.assert_array_equal(frames, stored.frames)
        np.testing.assert_array_equal(np.asarray(row["responses"], np.float32), stored.responses)
        descriptors = np.frombuffer(row["descriptors"], np.float16).reshape(-1, 32)
        np.testing.assert_array_equal(descriptors.astype(np.float32), stored.descriptors.numpy())


def test_the_folder_opens_while_it_is_being_written(features):
    with OutputLock(features, inside=True), atomic_write(features / "part-000009.parquet") as unfinished:
        unfinished.write_bytes(b"PAR1")
        assert len(read_pyarrow(features)) == 4
        assert len(read_pandas(features)) == 4
        unfinished.write_bytes(next(features.glob("part-000001-*")).read_bytes())


def test_parts_of_several_extractors_form_one_dataset(features):
    other = ExtractorInfo("other", "some", "sift", 6.0, 100, "binary", 64, "bits")
    write(features, [StoredImage("a.png", "", random_features(0, 3, dim=64, binary=True))], other)
    assert len(pyarrow.dataset.dataset(features).to_table()) == 9
    assert FeatureSet(features).names == ["a.png"]
