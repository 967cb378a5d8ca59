"""Exported rows hold every descriptor once, as DuckDB reads them."""

import numpy as np
import pytest

from doap.collection import export_rows
from oracles.feature_sets import random_features, write_features

duckdb = pytest.importorskip("duckdb")


@pytest.mark.parametrize("binary", [False, True], ids=["real", "binary"])
def test_every_descriptor_is_a_row(tmp_path, monkeypatch, binary):
    monkeypatch.setattr("doap.collection.rows._BYTES_PER_FILE", 4000)
    images = {
        f"{number}.jpg": random_features(number, count, binary=binary) for number, count in enumerate((40, 0, 30))
    }
    features = write_features(tmp_path / "features", images)
    assert export_rows(features, tmp_path / "rows") == 70
    assert len(list((tmp_path / "rows").iterdir())) == (1 if binary else 2)
    for image in features.stream():
        query = "select keypoint, code from read_parquet(?) where image = ? order by keypoint"
        rows = duckdb.execute(query, [str(tmp_path / "rows" / "*.parquet"), image.name]).fetchall()
        assert [keypoint for keypoint, _ in rows] == list(range(len(image.features)))
        codes = [np.frombuffer(code, np.uint8) if binary else np.array(code, np.float32) for _, code in rows]
        np.testing.assert_array_equal(np.reshape(codes, image.features.descriptors.shape), image.features.descriptors)
