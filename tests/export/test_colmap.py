"""Contents of COLMAP databases, read with pycolmap, and COLMAP's results with them."""

from itertools import combinations, pairwise

import cv2
import numpy as np
import pycolmap
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from doap._support.errors import ArgumentError, DataError
from doap.baselines import rootsift, teblid
from doap.collection.features import FeatureSet
from doap.data.builders.tracks import _size_and_angle
from doap.describer import PatchDescriber
from doap.detectors import colmap_default
from doap.export.colmap import write_colmap
from doap.export.colmap_database import make_keypoints
from doap.images import angles, frames_from_affine, frames_from_arrays, read_grey, scales
from doap.pipeline import extract, match
from oracles.colmap_database import MAX_KEYPOINTS, ids, write
from oracles.photos import write_photo

EXIF_ORIENTATION, ROTATED_CLOCKWISE = 0x0112, 6


@pytest.fixture(scope="module")
def features(photos):
    paths = sorted(photos.glob("*.png"))
    return {path.name: extract(read_grey(path), rootsift(), max_keypoints=MAX_KEYPOINTS) for path in paths}


def matched_pairs(path):
    with pycolmap.Database.open(path) as opened:
        name = {image: name for name, image in ids(opened).items()}
        return {
            tuple(name[image] for image in pycolmap.pair_id_to_image_pair(pair))
            for pair in opened.read_all_matches()[0]
        }


def test_keypoints_are_shifted_by_half_a_pixel(database, features):
    with pycolmap.Database.open(database.out) as opened:
        assert set(ids(opened)) == set(features)
        for name, image in ids(opened).items():
            rows, expected = opened.read_keypoints(image), features[name]
            np.testing.assert_allclose(rows[:, :2], expected.keypoints + 0.5, rtol=0, atol=1e-4)
            half, angle = _size_and_angle(rows[:, 2:])
            np.testing.assert_allclose(half, scales(expected.frames), rtol=1e-4)
            np.testing.assert_allclose(np.cos(np.radians(angle - angles(expected.frames))), 1, atol=1e-6)
    assert database.keypoints == sum(map(len, features.values())) > 100


def test_keypoints_and_masks_of_a_tiff_with_an_orientation_are_in_the_pixels_of_its_camera(photos, tmp_path):
    pixels = read_grey(photos / "0.png")[:150]
    height, width = pixels.shape
    mask = np.zeros_like(pixels)
    mask[:, width // 2 :] = 255
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    Image.fromarray(pixels).save(tmp_path / "images" / "0.tif", tiffinfo={EXIF_ORIENTATION: ROTATED_CLOCKWISE})
    Image.fromarray(mask).save(tmp_path / "masks" / "0.tif.png")
    out = write(tmp_path / "images", tmp_path / "database.db", masks=tmp_path / "masks").out
    with pycolmap.Database.open(out) as opened:
        ((camera,), rows) = opened.read_all_cameras(), opened.read_keypoints(ids(opened)["0.tif"])
    assert (camera.width, camera.height) == (width, height)
    expected = extract(pixels, rootsift(), max_keypoints=MAX_KEYPOINTS, mask=mask).keypoints
    np.testing.assert_allclose(rows[:, :2], expected + 0.5, rtol=0, atol=1e-4)


def test_by_default_keypoints_are_those_of_colmap_and_matches_pass_the_ratio_test_of_the_descriptor(photos, tmp_path):
    describer = rootsift()
    describer.ratio = 0.8
    summary = write_colmap(photos, tmp_path / "database.db", describer)
    with pycolmap.Database.open(summary.out) as opened:
        name0, name1 = sorted(ids(opened))[:2]
        frames, _ = colmap_default().detect(read_grey(photos / name0), 8192)
        np.testing.assert_allclose(opened.read_keypoints(ids(opened)[name0])[:, :2], frames[:, :, 2] + 0.5, atol=1e-3)
        stored = FeatureSet(tmp_path / "database.db.features")
        expected = match(stored.read(name0).features, stored.read(name1).features, ratio=0.8)
        np.testing.assert_array_equal(opened.read_matches(ids(opened)[name0], ids(opened)[name1]), expected.indices)
    # The effective number is stored: giving it changes nothing.
    assert write_colmap(photos, tmp_path / "database.db", describer, ratio=0.8).unchanged


def test_a_lower_error_verifies_fewer_matches_and_reuses_the_matches(photos, tmp_path):
    strict, loose = (write(photos, tmp_path / "database.db", max_error=error) for error in (0.3, 4.0))
    assert strict.matches == loose.matches
    assert strict.verified_matches < loose.verified_matches
    assert not loose.unchanged
    assert write(photos, tmp_path / "database.db", max_error=4.0).unchanged


def test_matches_equal_doap_match_and_are_verified(database, features):
    with pycolmap.Database.open(database.out) as opened:
        for name0, name1 in combinations(sorted(features), 2):
            pair = ids(opened)[name0], ids(opened)[name1]
            expected = match(features[name0], features[name1]).indices
            np.testing.assert_array_equal(opened.read_matches(*pair), expected)
        first, second = ids(opened)["0.png"], ids(opened)["1.png"]
        # The second view is the first one, rotated by 90°.
        assert opened.read_two_view_geometry_num_inliers()[1]
        assert len(opened.read_two_view_geometry(first, second).inlier_matches) > 20
    assert (database.pairs, database.unchanged) == (6, False)
    assert database.matches > database.verified_matches > 20
    assert database.verified_pairs >= 1


def test_binary_descriptors_and_other_lengths_are_matched_but_not_stored(photos, tmp_path):
    for descriptor in (teblid(), Signed(64)):
        written = write(photos, tmp_path / f"{descriptor.dim}.db", descriptor=descriptor, pairs="sequential", overlap=1)
        assert written.matches > 0
        with pycolmap.Database.open(written.out) as opened:
            assert opened.num_descriptors() == 0
        with pytest.raises(ArgumentError):
            write(photos, tmp_path / "none.db", descriptor=descriptor, pairs=None)


def test_square_and_affine_frames_become_keypoints():
    upright = frames_from_arrays([[10, 20], [0, 0]], [12, 3], [30, -170])
    rows = make_keypoints(upright)
    np.testing.assert_allclose(rows, [[10.5, 20.5, 2, np.radians(30)], [0.5, 0.5, 0.5, np.radians(-170)]], rtol=1e-6)
    sheared = frames_from_affine([[10, 20]], [[[6, 3], [1, 9]]])
    rows = make_keypoints(sheared)
    np.testing.assert_allclose(rows, [[10.5, 20.5, 1, 0.5, 1 / 6, 1.5]], rtol=1e-6)
    # COLMAP's interpretation of the affine columns.
    shape = dict(zip(("x", "y", "a11", "a12", "a21", "a22"), map(float, rows[0]), strict=True))
    keypoint = pycolmap.FeatureKeypoint(**shape)
    assert keypoint.compute_scale_x() == pytest.approx(np.hypot(6, 1) / 6, rel=1e-5)
    assert keypoint.compute_orientation() == pytest.approx(np.radians(angles(sheared)[0]), rel=1e-5)
    assert make_keypoints(np.zeros((0, 2, 3), np.float32)).shape == (0, 4)
    # The sides of a downscaled image are rounded.
    for stretch, columns in ((1.0005, 4), (1.01, 6)):
        assert make_keypoints(np.array([[[12.0 * stretch, 0, 5], [0, 12, 6]]], np.float32)).shape == (1, columns)


class Signed(PatchDescriber):
    """A descriptor with negative values: a fixed random projection of the patch."""

    patch_size, kind = 16, "real"

    def __init__(self, dim=128):
        self.dim = dim
        self.projection = torch.randn(256, dim, generator=torch.Generator().manual_seed(0))

    def describe_patches(self, patches):
        flat = patches.flatten(1)
        return normalize((flat - flat.mean(1, keepdim=True)) @ self.projection)


@pytest.mark.parametrize("descriptor", [rootsift(), Signed()], ids=["unsigned", "signed"])
def test_colmaps_matcher_finds_the_verified_matches_in_the_stored_bytes(photos, tmp_path, descriptor):
    ours = write(photos, tmp_path / "ours.db", descriptor=descriptor)
    bytes_only = write(photos, tmp_path / "bytes.db", descriptor=descriptor, pairs=None)
    assert (bytes_only.pairs, bytes_only.matches) == (0, 0)
    rule = {"max_ratio": 1.0, "max_distance": 2.0}
    pycolmap.match_exhaustive(
        bytes_only.out,
        matching_options=pycolmap.FeatureMatchingOptions(num_threads=1, use_gpu=False, sift=rule),
        verification_options=pycolmap.TwoViewGeometryOptions(ransac={"random_seed": 0}),
        device=pycolmap.Device.cpu,
    )
    with pycolmap.Database.open(ours.out) as first, pycolmap.Database.open(bytes_only.out) as second:
        found = total = 0
        for pair, geometry in zip(*first.read_two_view_geometries(), strict=True):
            verified = set(map(tuple, geometry.inlier_matches.tolist()))
            colmap = second.read_matches(*pycolmap.pair_id_to_image_pair(pair)).tolist()
            found, total = found + len(verified & set(map(tuple, colmap))), total + len(verified)
    assert total > 20
    assert found / total >= 0.9


def test_pairs_are_exhaustive_sequential_listed_or_given(photos, tmp_path):
    names = [f"{number}.png" for number in range(4)]
    (tmp_path / "pairs.txt").write_text("# two\n3.png 0.png\n\n0.png 3.png\n1.png 2.png\n")
    for pairs, expected in [
        ("exhaustive", set(combinations(names, 2))),
        ("sequential", set(pairwise(names))),
        (tmp_path / "pairs.txt", {("0.png", "3.png"), ("1.png", "2.png")}),
        ([("2.png", "0.png"), ("0.png", "2.png")], {("0.png", "2.png")}),
    ]:
        # Each database replaces the previous one, and matches of common pairs are reused.
        written = write(photos, tmp_path / "database.db", pairs=pairs, overlap=1)
        assert matched_pairs(written.out) == expected
        assert (written.pairs, written.unchanged) == (len(expected), False)


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe\x80", b"#0.png 1.png\n", b"0.png 9.png\n", b"0.png\n", b"1.png 1.png\n"]
)
def test_a_wrong_list_of_pairs_is_refused_before_any_work(photos, tmp_path, content):
    """A missing file, a binary one, no pairs, an unknown image, one image, and twice the same."""
    if content is not None:
        (tmp_path / "pairs.txt").write_bytes(content)
    with pytest.raises(DataError):
        write(photos, tmp_path / "database.db", pairs=tmp_path / "pairs.txt")
    assert not [path for path in tmp_path.iterdir() if path.name != "pairs.txt"]


def test_names_contain_folders_and_camera_modes_share_cameras(photos, tmp_path):
    for folder in ("a", "b"):
        for number in (0, 1):
            write_photo(tmp_path / "photos" / folder / f"{number}.png", number)
    with pytest.raises(ArgumentError):
        write(tmp_path / "photos", tmp_path / "database.db", camera_mode="double")
    cameras = {"auto": 4, "single": 1, "per-folder": 2, "per-image": 4}
    for mode, number in cameras.items():
        written = write(tmp_path / "photos", tmp_path / "database.db", camera_mode=mode, pairs=None)
        with pycolmap.Database.open(written.out) as opened:
            assert set(ids(opened)) == {"a/0.png", "a/1.png", "b/0.png", "b/1.png"}
            assert (opened.num_cameras(), opened.num_frames()) == (number, 4)


@pytest.mark.data("strecha")
def test_real_photos_are_reconstructed(data_folder, tmp_path):
    (tmp_path / "photos").mkdir()
    for number in range(3, 7):
        name = f"{number:04}.jpg"
        photo = cv2.imread(str(data_folder / "strecha" / "fountain-P11" / name))
        cv2.imwrite(str(tmp_path / "photos" / name), cv2.resize(photo, (768, 512), interpolation=cv2.INTER_AREA))
    written = write_colmap(
        tmp_path / "photos",
        tmp_path / "database.db",
        rootsift(),
        max_keypoints=1500,
        pairs="sequential",
        overlap=2,
        camera_mode="single",
    )
    (tmp_path / "sparse").mkdir()
    options = pycolmap.IncrementalPipelineOptions(num_threads=1, random_seed=0)
    models = pycolmap.incremental_mapping(written.out, tmp_path / "photos", tmp_path / "sparse", options)
    assert models[0].num_reg_images() == 4
    assert models[0].num_points3D() > 200
    assert models[0].compute_mean_reprojection_error() < 1
