"""Feature files of OpenSfM and openMVG: parsed as these programs do, resumable, and never mixed with other files."""

import json
import struct

import cv2
import numpy as np
import pytest
import torch

import doap
from doap import pipeline
from doap._support.errors import ArgumentError, DataError
from doap._support.files import OutputLock
from doap.baselines import rootsift, teblid
from doap.describer import from_function
from doap.export.features import FEATURE_FORMATS, write_features
from doap.images import read_colour, scales
from oracles.photos import write_photo

WIDTH, HEIGHT = 160, 120


@pytest.fixture
def images(tmp_path):
    for name, seed in {"a.png": 0, "sub/b.c.png": 1}.items():
        write_photo(tmp_path / "images" / name, seed, HEIGHT, WIDTH)
    return tmp_path / "images"


def run(images, out, to, describer=rootsift, **changes):
    return write_features(images, out, describer(), to=to, **{"max_keypoints": 50, **changes})


def extract(path, describer=rootsift):
    return pipeline.extract(path, describer(), max_keypoints=50)


def read_opensfm(path):
    """As OpenSfM's `FeaturesData.from_file`, followed by `denormalized_image_coordinates` for an image of this size."""
    stored = dict(np.load(path, allow_pickle=False))
    assert stored.pop("OPENSFM_FEATURES_VERSION") == 3
    assert [len(stored.pop(name)) for name in ("segmentations", "instances", "segmentation_labels")] == [0, 0, 0]
    points = stored["points"].astype(np.float64)
    pixels = [
        [x * WIDTH - 0.5 + WIDTH / 2, y * WIDTH - 0.5 + HEIGHT / 2, size * WIDTH, angle] for x, y, size, angle in points
    ]
    return np.array(pixels).reshape(-1, 4), stored


def read_openmvg(folder, stem, length):
    """As openMVG's `loadFeatsFromFile` and `loadDescsFromBinFile`."""
    numbers = [float(word) for word in (folder / f"{stem}.feat").read_text().split()]
    data = (folder / f"{stem}.desc").read_bytes()
    (count,) = struct.unpack("<Q", data[:8])
    assert len(data) == 8 + count * length
    rows = [list(data[8 + row * length : 8 + (row + 1) * length]) for row in range(count)]
    return np.array(numbers).reshape(-1, 4), np.array(rows, np.int64).reshape(-1, length)


def regions_type(folder):
    """Return openMVG's type of regions, after checking what cereal needs to read an owned pointer to it."""
    content = json.loads((folder / "image_describer.json").read_text())["regions_type"]
    assert list(content) == ["polymorphic_id", "polymorphic_name", "ptr_wrapper"]
    assert content["polymorphic_id"] == 0x80000001
    assert content["ptr_wrapper"] == {"valid": 1, "data": {"value0": [], "value1": []}}
    return content["polymorphic_name"]


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("_"))


def test_opensfm_reads_positions_sizes_angles_descriptors_and_colours(images, tmp_path):
    random = np.random.default_rng(0)
    colour = cv2.GaussianBlur(random.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8), (0, 0), 2) * 3
    cv2.imwrite(str(images / "a.png"), colour)
    summary = run(images, tmp_path / "features", "opensfm")
    assert (summary.images, summary.extracted, summary.reused, summary.skipped) == (2, 2, 0, {})
    assert names(tmp_path / "features") == ["a.png.features.npz", "b.c.png.features.npz"]
    points, stored = read_opensfm(tmp_path / "features" / "a.png.features.npz")
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


def test_opensfm_keeps_bits_packed(images, tmp_path):
    run(images, tmp_path / "features", "opensfm", describer=teblid)
    _, stored = read_opensfm(tmp_path / "features" / "a.png.features.npz")
    assert stored["descriptors"].dtype == np.uint8
    assert np.array_equal(stored["descriptors"], extract(images / "a.png", teblid).descriptors)


def test_openmvg_reads_keypoints_and_bytes_of_sift(images, tmp_path):
    run(images, tmp_path / "matches", "openmvg")
    files = ["a.desc", "a.feat", "b.c.desc", "b.c.feat", "image_describer.json"]
    assert names(tmp_path / "matches") == files
    assert regions_type(tmp_path / "matches") == "SIFT_Regions"
    keypoints, rows = read_openmvg(tmp_path / "matches", "b.c", 128)
    expected = extract(images / "sub" / "b.c.png")
    np.testing.assert_allclose(keypoints[:, :2], expected.keypoints, rtol=1e-6)
    # SIFT's patch is 12 σ wide.
    np.testing.assert_allclose(keypoints[:, 2], scales(expected.frames) / 6, rtol=1e-5)
    right = expected.frames[:, :, 0] / scales(expected.frames)[:, None]
    np.testing.assert_allclose(np.stack([np.cos(keypoints[:, 3]), np.sin(keypoints[:, 3])], 1), right, atol=1e-3)
    assert np.array_equal(rows, np.rint(512 * expected.descriptors.numpy()).clip(0, 255))


def test_openmvg_keeps_the_distances_of_shorter_bits(images, tmp_path):
    run(images, tmp_path / "matches", "openmvg", describer=teblid)
    assert regions_type(tmp_path / "matches") == "AKAZE_Binary_Regions"
    _, rows = read_openmvg(tmp_path / "matches", "a", 64)
    bits = np.unpackbits(extract(images / "a.png", teblid).descriptors.numpy(), axis=1)
    stored = np.unpackbits(rows.astype(np.uint8), axis=1)
    assert np.array_equal((stored[:, None] != stored).sum(axis=2), (bits[:, None] != bits).sum(axis=2))


def signed(patches):
    """Describe patches by 16 signed numbers."""
    pooled = torch.nn.functional.avg_pool2d(patches, 8).flatten(1)
    return torch.nn.functional.normalize(pooled - pooled.mean(dim=1, keepdim=True), dim=1)


def test_openmvg_keeps_the_order_of_distances_of_shorter_signed_descriptors(images, tmp_path):
    run(images, tmp_path / "matches", "openmvg", describer=lambda: from_function(signed))
    _, rows = read_openmvg(tmp_path / "matches", "a", 128)
    assert not rows[:, 16:].any()
    exact = extract(images / "a.png", lambda: from_function(signed)).descriptors.double()
    before, after = torch.cdist(exact, exact).flatten(), torch.cdist(*[torch.tensor(rows, dtype=torch.double)] * 2)
    assert np.corrcoef(before, after.flatten())[0, 1] > 0.95


def test_openmvg_refuses_longer_descriptors(images, tmp_path):
    def long(patches):
        return torch.nn.functional.normalize(torch.nn.functional.avg_pool2d(patches, 2).flatten(1), dim=1)

    with pytest.raises(ArgumentError, match=r"at most 128 .* got 256"):
        run(images, tmp_path / "matches", "openmvg", describer=lambda: from_function(long))
    assert run(images, tmp_path / "features", "opensfm", describer=lambda: from_function(long)).images == 2


@pytest.mark.parametrize("to", FEATURE_FORMATS)
def test_an_image_without_keypoints_has_empty_files(images, tmp_path, to):
    cv2.imwrite(str(images / "black.png"), np.zeros((HEIGHT, WIDTH), np.uint8))
    run(images, tmp_path / "out", to)
    if to == "opensfm":
        points, stored = read_opensfm(tmp_path / "out" / "black.png.features.npz")
        assert (stored["descriptors"].shape, stored["colors"].shape) == ((0, 128), (0, 3))
    else:
        points, _ = read_openmvg(tmp_path / "out", "black", 128)
    assert points.shape == (0, 4)


@pytest.mark.parametrize("to", FEATURE_FORMATS)
def test_a_second_run_updates_the_files_and_deletes_those_of_removed_images(images, tmp_path, to):
    out = tmp_path / "out"
    run(images, out, to)
    first = {name: (out / name).read_bytes() for name in names(out)}
    (out / "sfm_data.json").write_text("{}")
    again = run(images, out, to)
    assert (again.extracted, again.reused) == (0, 2)
    assert {name: (out / name).read_bytes() for name in first} == first
    (images / "sub" / "b.c.png").unlink()
    (images / "damaged.png").write_bytes(b"not an image")
    last = run(images, out, to, describer=teblid)
    assert (last.images, last.extracted, list(last.skipped)) == (1, 1, ["damaged.png"])
    assert names(out) == sorted([name for name in first if not name.startswith("b.c.")] + ["sfm_data.json"])
    assert all((out / name).read_bytes() != first[name] for name in names(out) if name.endswith((".npz", ".desc")))


def test_keypoints_and_colours_are_of_the_same_version_of_an_image(images, tmp_path):
    def replace_image(done, total, _):
        if done == total:
            write_photo(images / "a.png", 2, HEIGHT, WIDTH)

    with pytest.raises(DataError, match=r"a\.png: the image or its mask changed .* Run the same command again"):
        run(images, tmp_path / "out", "opensfm", progress=replace_image)
    run(images, tmp_path / "out", "opensfm")
    points, stored = read_opensfm(tmp_path / "out" / "a.png.features.npz")
    expected = extract(images / "a.png")
    np.testing.assert_allclose(points[:, :2], expected.keypoints, atol=1e-4)
    x, y = np.rint(expected.keypoints).astype(int).T
    assert np.array_equal(stored["colors"], read_colour(images / "a.png")[y, x, ::-1])


@pytest.mark.parametrize(("to", "foreign"), [("opensfm", "a.png.features.npz"), ("openmvg", "image_describer.json")])
def test_files_of_the_programs_themselves_are_not_overwritten(images, tmp_path, to, foreign):
    out = tmp_path / "out"
    out.mkdir()
    (out / foreign).write_text("theirs")
    with pytest.raises(DataError, match=f"{foreign}: exists and was not written by doap"):
        run(images, out, to)
    assert (names(out), (out / foreign).read_text()) == ([foreign], "theirs")


@pytest.mark.parametrize(("to", "other"), [("opensfm", "sub/a.png"), ("openmvg", "a.jpg")])
def test_images_that_the_programs_cannot_distinguish_are_refused(images, tmp_path, to, other):
    write_photo(images / other, 3)
    with pytest.raises(DataError, match="Rename one image"):
        run(images, tmp_path / "out", to)


def test_a_damaged_manifest_deletes_nothing_outside_the_folder(images, tmp_path):
    victim = tmp_path / "keep.npz"
    victim.touch()
    (tmp_path / "out").mkdir()
    for content in ('{"files": ["../keep.npz"]}', '{"files": 3}', "[]", "{"):
        (tmp_path / "out" / "_doap.json").write_text(content)
        with pytest.raises(DataError, match=r"_doap\.json"):
            run(images, tmp_path / "out", "opensfm")
    assert victim.exists()


def test_by_default_an_image_has_up_to_8192_keypoints(tmp_path):
    write_photo(tmp_path / "images" / "large.png", 0, 480, 640)
    write_features(tmp_path / "images", tmp_path / "out", teblid(), to="openmvg")
    keypoints, rows = read_openmvg(tmp_path / "out", "large", 64)
    assert len(keypoints) == len(rows) == 8192


def test_masks_drop_keypoints(images, tmp_path):
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[:, : WIDTH // 2] = 255
    (tmp_path / "masks").mkdir()
    cv2.imwrite(str(tmp_path / "masks" / "a.png.png"), mask)
    assert run(images, tmp_path / "out", "opensfm", masks=tmp_path / "masks").masks == 1
    points, _ = read_opensfm(tmp_path / "out" / "a.png.features.npz")
    assert len(points) > 0
    assert (points[:, 0] < WIDTH // 2).all()


def test_an_unknown_format_and_a_second_writer_are_refused(images, tmp_path):
    with pytest.raises(ArgumentError, match="to: expected one of opensfm, openmvg, got"):
        run(images, tmp_path / "out", "bundler")
    (tmp_path / "out").mkdir()
    with OutputLock(tmp_path / "out", inside=True), pytest.raises(DataError, match="is writing to it"):
        doap.write_features(images, tmp_path / "out", rootsift(), to="opensfm")
