"""Track files: the tracks of a model without its pixels."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from doap._support.errors import DataError
from doap.data.builders import build_from_colmap, build_from_tracks, write_track_file
from doap.data.builders.from_tracks import read_track_file
from doap.data.builders.tracks import read_tracks
from doap.data.store import open_set
from doap.images import angles, centres, scales
from oracles.plane_scene import write_scene


@pytest.fixture
def scene(tmp_path):
    points = np.column_stack([np.random.default_rng(0).uniform(-1.2, 1.2, (40, 2)), np.zeros(40)])
    points[7] = points[8] + [0.02, 0, 0]
    write_scene(tmp_path, points)
    return tmp_path


@pytest.fixture
def file(scene):
    model, images = scene / "sparse", scene / "images"
    return write_track_file(model, images, scene / "a.parquet", database=scene / "database.db", folder="images")


def change(file, **changes):
    """Change keys of the metadata of a track file."""
    table = pq.read_table(file, memory_map=False)
    meta = json.loads(table.schema.metadata[b"doap"]) | changes
    pq.write_table(table.replace_schema_metadata({"doap": json.dumps(meta)}), file)


def test_frames_are_those_of_the_model_to_the_rounding_of_the_columns(scene, file):
    tracks, stored = read_tracks(scene / "sparse", scene / "database.db"), read_track_file(file).tracks
    np.testing.assert_array_equal(stored.point, tracks.point)
    np.testing.assert_array_equal(stored.image, tracks.image)
    np.testing.assert_array_equal(stored.ignore, tracks.ignore)
    np.testing.assert_allclose(centres(stored.frames), centres(tracks.frames), atol=1.01 / 64)
    np.testing.assert_allclose(np.log2(scales(stored.frames) / scales(tracks.frames)), 0, atol=1.01 / 64)
    turned = (angles(stored.frames) - angles(tracks.frames) + 180) % 360 - 180
    np.testing.assert_allclose(turned, 0, atol=0.26)


@pytest.mark.parametrize("extent", [1.0, 1.5])
def test_patches_are_those_of_the_model(scene, file, extent):
    build_from_colmap(scene / "sparse", scene / "images", scene / "one", database=scene / "database.db", extent=extent)
    ledger = scene / "ledger.csv"
    ledger.write_text("file,scene,split\nimages/1.png,images,train\nother.png,other,train\n")
    build_from_tracks([file], scene, scene / "two", extent=extent, ledger=ledger)
    one, two = open_set(scene / "one"), open_set(scene / "two")
    every = np.arange(len(one))
    np.testing.assert_array_equal(one.count, two.count)
    np.testing.assert_array_equal(one.ignored(every), two.ignored(every))
    assert (two.extent, two.scene_names) == (extent, one.scene_names)
    assert [row["file"] for row in two.meta["ledger"]] == ["images/1.png"]
    patches = [one.gather(np.arange(one.count.sum())).astype(float) for one in (one, two)]
    assert np.abs(patches[0] - patches[1]).mean() < 1


def test_several_scenes_are_one_set_and_their_points_keep_their_numbers(scene, file):
    other = scene / "b.parquet"
    other.write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="2 files of 1 scenes"):
        build_from_tracks([file, other], scene, scene / "set")
    change(other, scene="other")
    found = open_set(build_from_tracks([file, other], scene, scene / "set"))
    assert found.scene_names == ["images", "other"]
    assert np.bincount(found.scene_ids).tolist() == [40, 40]
    first, second = (found.ignored(groups) for groups in (np.arange(40), np.arange(40, 80)))
    np.testing.assert_array_equal(first, second)
    assert len(found.ignored(np.arange(80))) == 2 * len(first) > 0


def test_photos_that_changed_or_are_missing_are_refused(scene, file):
    photo = scene / "images" / "1.png"
    content = photo.read_bytes()
    photo.write_bytes(content + b"more")
    with pytest.raises(DataError, match="1 of 4 photos differ"):
        build_from_tracks([file], scene, scene / "set")
    photo.unlink()
    with pytest.raises(DataError, match="missing 1 of 4"):
        build_from_tracks([file], scene, scene / "set")


@pytest.mark.parametrize("name", ["../a.png", "/a.png"])
def test_names_outside_the_folder_of_photos_are_refused(file, name):
    change(file, images=[{"name": name, "height": 9, "width": 9, "sha256": ""}] * 4)
    with pytest.raises(DataError):
        read_track_file(file)


@pytest.mark.parametrize(
    ("column", "value"), [("point", 2), ("point", -1), ("image", 4), ("image", -1), ("size", 9999)]
)
def test_columns_that_no_model_has_are_refused(file, column, value):
    table = pq.read_table(file, memory_map=False)
    values = table[column].to_numpy().copy()
    values[0] = value
    index = table.schema.get_field_index(column)
    pq.write_table(table.set_column(index, table.schema.field(column), pa.array(values)), file)
    with pytest.raises(DataError, match="damaged columns"):
        read_track_file(file)


def test_another_table_or_version_is_refused(scene, file):
    change(file, format=2)
    with pytest.raises(DataError, match="expected format 1, got 2"):
        read_track_file(file)
    pq.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(DataError, match="not a track file"):
        read_track_file(file)
