"""Feature files of OpenSfM: parsed as OpenSfM does, updated one by one, and never mixed with other files."""

import cv2
import numpy as np
import pytest

from doap import pipeline
from doap._support.errors import DataError
from doap.baselines import rootsift, teblid
from doap.export.opensfm import write_opensfm
from doap.images import read_colour, scales
from oracles.photos import write_photo

WIDTH, HEIGHT = 160, 120


@pytest.fixture
def images(tmp_path):
    for name, seed in {"a.png": 0, "sub/b.c.png": 1}.items():
        write_photo(tmp_path / "images" / name, seed, HEIGHT, WIDTH)
    return tmp_path / "images"


def run(images, out, describer=rootsift, **changes):
    return write_opensfm(images, out, describer(), **{"max_keypoints": 50, **changes})


def extract(path, describer=rootsift):
    return pipeline.extract(path, describer(), max_keypoints=50)


def read(path):
    """As OpenSfM's `FeaturesData.from_file`, followed by `denormalized_image_coordinates` for an image of this size."""
    stored = dict(np.load(path, allow_pickle=False))
    assert stored.pop("OPENSFM_FEATURES_VERSION") == 3
    assert [len(stored.pop(name)) for name in ("segmentations", "instances", "segmentation_labels")] == [0, 0, 0]
    points = stored["points"].astype(np.float64)
    pixels = [
        [x * WIDTH - 0.5 + WIDTH / 2, y * WIDTH - 0.5 + HEIGHT / 2, size * WIDTH, angle] for x, y, size, angle in points
    ]
    return np.array(pixels).reshape(-1, 4), stored


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("_")}


def test_opensfm_reads_positions_sizes_angles_descriptors_and_colours(images, tmp_path):
    random = np.random.default_rng(0)
    colour = cv2.GaussianBlur(random.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8), (0, 0), 2) * 3
    cv2.imwrite(str(images / "a.png"), colour)
    summary = run(images, tmp_path / "features")
    assert (summary.out, summary.extracted, summary.reused, summary.skipped) == (tmp_path / "features", 2, 0, {})
    assert set(contents(tmp_path / "features")) == {"a.png.features.npz", "b.c.png.features.npz"}
    points, stored = read(tmp_path / "features" / "a.png.features.npz")
    expected = extract(images / "a.png")
    np.testing.assert_allclose(points[:, :2], expected.keypoints, atol=1e-4)
    # SIFT's patch is six times as wide as the size that OpenCV reports.
    np.testing.assert_allclose(points[:, 2], scales(expected.frames) * 2 / 6, rtol=1e-4)
    right = expected.frames[:, :, 0] / scales(expected.frames)[:, None]
    turn = np.radians(points[:, 3])
    np.testing.assert_allclose(np.stack([np.cos(turn), np.sin(turn)], 1), right, atol=1e-3)
    assert ((points[:, 3] >= 0) & (points[:, 3] < 360)).all()
    assert np.array_equal(stored["descriptors"], expected.descriptors)
    assert (stored["points"].dtype, stored["descriptors"].dtype) == (np.float32, np.float32)
    blue, green, red = np.moveaxis(read_colour(images / "a.png"), 2, 0)
    for (x, y), rgb in zip(expected.keypoints, stored["colors"], strict=True):
        at = round(float(y)), round(float(x))
        assert rgb.tolist() == [red[at], green[at], blue[at]]


def test_bits_stay_packed(images, tmp_path):
    run(images, tmp_path / "features", describer=teblid)
    _, stored = read(tmp_path / "features" / "a.png.features.npz")
    assert stored["descriptors"].dtype == np.uint8
    assert np.array_equal(stored["descriptors"], extract(images / "a.png", teblid).descriptors)


def test_an_image_without_keypoints_has_empty_arrays(images, tmp_path):
    cv2.imwrite(str(images / "black.png"), np.zeros((HEIGHT, WIDTH), np.uint8))
    run(images, tmp_path / "out")
    points, stored = read(tmp_path / "out" / "black.png.features.npz")
    assert (points.shape, stored["descriptors"].shape, stored["colors"].shape) == ((0, 4), (0, 128), (0, 3))


def test_a_second_run_writes_only_files_of_changed_images_and_deletes_those_of_removed_ones(images, tmp_path):
    out = tmp_path / "out"
    run(images, out)
    first, times = contents(out), {path: path.stat().st_mtime_ns for path in out.glob("*.npz")}
    again = run(images, out)
    assert (again.extracted, again.reused) == (0, 2)
    assert {path: path.stat().st_mtime_ns for path in out.glob("*.npz")} == times
    write_photo(images / "a.png", 5, HEIGHT, WIDTH)
    run(images, out)
    changed = {name for name, content in contents(out).items() if content != first[name]}
    assert changed == {"a.png.features.npz"}
    (out / "theirs.json").touch()
    (images / "sub" / "b.c.png").unlink()
    (images / "damaged.png").write_bytes(b"not an image")
    last = run(images, out, describer=teblid)
    assert (last.extracted, list(last.skipped)) == (1, ["damaged.png"])
    assert set(contents(out)) == {"a.png.features.npz", "theirs.json"}
    assert read(out / "a.png.features.npz")[1]["descriptors"].dtype == np.uint8


def test_keypoints_and_colours_are_of_the_same_version_of_an_image(images, tmp_path):
    def replace_image(done, total, _):
        if done == total:
            write_photo(images / "a.png", 2, HEIGHT, WIDTH)

    with pytest.raises(DataError):
        run(images, tmp_path / "out", progress=replace_image)
    run(images, tmp_path / "out")
    points, stored = read(tmp_path / "out" / "a.png.features.npz")
    expected = extract(images / "a.png")
    np.testing.assert_allclose(points[:, :2], expected.keypoints, atol=1e-4)
    x, y = np.rint(expected.keypoints).astype(int).T
    assert np.array_equal(stored["colors"], read_colour(images / "a.png")[y, x, ::-1])


def test_files_of_opensfm_itself_are_not_overwritten(images, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.png.features.npz").write_text("theirs")
    with pytest.raises(DataError):
        run(images, tmp_path / "out")
    assert contents(tmp_path / "out") == {"a.png.features.npz": b"theirs"}


def test_images_that_opensfm_cannot_distinguish_are_refused(images, tmp_path):
    write_photo(images / "sub" / "a.png", 3)
    with pytest.raises(DataError):
        run(images, tmp_path / "out")


@pytest.mark.parametrize("content", ['{"../keep.npz": ""}', '{"a.npz": 3}', "[]", "{"])
def test_a_damaged_manifest_deletes_nothing_outside_the_folder(images, tmp_path, content):
    (tmp_path / "keep.npz").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_doap.json").write_text(content)
    with pytest.raises(DataError):
        run(images, tmp_path / "out")
    assert (tmp_path / "keep.npz").exists()
