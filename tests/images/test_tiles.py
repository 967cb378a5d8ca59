"""Extraction in tiles: equal to untiled extraction, each keypoint once, the strongest of the whole image."""

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from scipy.spatial import cKDTree
from torch.nn.functional import normalize

import doap
from doap._support.errors import ArgumentError
from doap.collection.extractor import ExtractorInfo, open_extractor
from doap.describer import from_function
from doap.images import angles, scales
from doap.images.tiles import cut_tiles

pytestmark = pytest.mark.slow
HEIGHT, WIDTH, TILE = 576, 704, 512
EXIF_ORIENTATION, ROTATED_CLOCKWISE = 0x0112, 6
# The patches themselves, normalised, are quick to compute.
PATCHES = from_function(lambda patches: normalize(patches.flatten(1)[:, ::13] - 0.5))


@pytest.fixture(scope="module")
def image():
    random = np.random.default_rng(0)
    pixels = np.zeros((HEIGHT, WIDTH), np.float32)
    for sigma in (5, 10, 20, 48):
        noise = cv2.GaussianBlur(random.normal(size=(HEIGHT, WIDTH)).astype(np.float32), (0, 0), sigma)
        pixels += noise / noise.std()
    return np.clip(127 + 25 * pixels, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module", params=["sift", "colmap"])
def both(image, request):
    """Features of the image without and with tiles."""
    if request.param == "colmap":
        pytest.importorskip("pycolmap")
    settings = {"detector": request.param, "max_keypoints": 100_000}
    return doap.extract(image, PATCHES, **settings), doap.extract(image, PATCHES, **settings, tile=TILE)


def coordinates(features):
    """Position, scale and orientation, with errors of similar sizes."""
    turn = np.radians(angles(features.frames))
    octaves = np.log2(scales(features.frames))
    return np.column_stack([features.keypoints, 8 * octaves, 20 * np.cos(turn), 20 * np.sin(turn)])


def test_tiles_give_the_keypoints_and_descriptors_of_the_whole_image(both):
    whole, tiled = both
    distance, nearest = cKDTree(coordinates(tiled)).query(coordinates(whole))
    reverse, _ = cKDTree(coordinates(whole)).query(coordinates(tiled))
    # A few keypoints at the limit of detection, or between two resolutions, may differ.
    small = scales(whole.frames) < 28
    assert (distance < 0.5)[small].mean() > 0.995
    assert (reverse < 0.5)[scales(tiled.frames) < 28].mean() > 0.995
    assert (reverse < 0.5).mean() > 0.98
    found = distance < 0.5
    difference = (whole.descriptors - tiled.descriptors[torch.from_numpy(nearest)]).norm(dim=1).numpy()
    assert np.quantile(difference[found & small], 0.98) < 0.01
    assert np.quantile(difference[found], 0.98) < 0.05
    # Small keypoints come from full resolution and are the same up to rounding; large ones are within 0.3 pixels.
    error = np.linalg.norm(whole.keypoints - tiled.keypoints[nearest], axis=1)
    assert np.quantile(error[small & found], 0.98) < 1e-3
    assert (~small).sum() > 50
    assert (distance[~small] < 0.5).mean() > 0.9
    assert np.quantile(error[~small & found], 0.9) < 0.3


def test_no_keypoint_is_found_in_two_tiles_of_one_resolution(both):
    whole, tiled = both
    # Between two resolutions a keypoint may occur twice: an image of so many large ones is unusual.
    pairs = [len(cKDTree(coordinates(features)).query_pairs(0.05)) for features in (whole, tiled)]
    assert pairs[1] <= pairs[0] + 1
    small = [features.keypoints[scales(features.frames) < 28] for features in (whole, tiled)]
    pairs = [len(cKDTree(points).query_pairs(0.05)) for points in small]
    assert pairs[1] <= pairs[0]


def test_responses_are_those_of_the_whole_image_strongest_first(both):
    whole, tiled = both
    assert (np.diff(tiled.responses) <= 0).all()
    distance, nearest = cKDTree(coordinates(tiled)).query(coordinates(whole))
    ratio = (tiled.responses[nearest] / whole.responses)[distance < 0.5]
    assert np.quantile(np.abs(ratio - 1), 0.99) < 0.05


def test_the_maximum_applies_to_the_whole_image_and_after_the_mask(image):
    tiled = doap.extract(image, PATCHES, max_keypoints=10_000, tile=TILE)
    mask = np.zeros_like(image)
    mask[:, 300:] = 1
    few = doap.extract(image, PATCHES, max_keypoints=200, tile=TILE, mask=mask)
    x, y = np.rint(tiled.keypoints).astype(int).clip(0, [WIDTH - 1, HEIGHT - 1]).T
    expected = np.flatnonzero(mask[y, x])[:200]
    np.testing.assert_array_equal(few.frames, tiled.frames[expected])
    torch.testing.assert_close(few.descriptors, tiled.descriptors[torch.from_numpy(expected)], rtol=0, atol=1e-6)


def test_an_image_that_fits_into_a_tile_is_extracted_as_without_tiles(image):
    crop = image[:500, :TILE]
    whole, tiled = (doap.extract(crop, PATCHES, max_keypoints=300, tile=tile) for tile in (None, TILE))
    np.testing.assert_array_equal(np.sort(whole.responses), np.sort(tiled.responses))
    assert set(map(bytes, whole.frames)) == set(map(bytes, tiled.frames))


@pytest.mark.parametrize("extension", ["jpg", "tif"])
def test_tiles_of_a_file_with_an_orientation_are_cut_from_the_stored_pixels(image, tmp_path, extension):
    plain, oriented = tmp_path / f"plain.{extension}", tmp_path / f"oriented.{extension}"
    Image.fromarray(image).save(plain)
    tag = {EXIF_ORIENTATION: ROTATED_CLOCKWISE}
    exif = Image.Exif()
    exif.update(tag)
    Image.fromarray(image).save(oriented, **({"tiffinfo": tag} if extension == "tif" else {"exif": exif}))
    expected, found = (doap.extract(path, PATCHES, max_keypoints=300, tile=TILE) for path in (plain, oriented))
    assert found.image_size == (HEIGHT, WIDTH)
    np.testing.assert_array_equal(found.frames, expected.frames)


@pytest.mark.parametrize("size", [(1300, 700), (512, 3000), (1, 4000), (513, 513)])
def test_every_pixel_belongs_to_one_core_of_each_resolution(size):
    tiles = cut_tiles(np.zeros(size, np.uint8), TILE)
    for stride in {tile.stride for tile in tiles}:
        own_tiles = [tile for tile in tiles if tile.stride == stride]
        owners = np.zeros(np.max([tile.offset[::-1] + tile.pixels.shape for tile in own_tiles], axis=0), int)
        for tile in own_tiles:
            assert max(tile.pixels.shape) <= TILE
            rows, columns = np.indices(tile.pixels.shape)
            centre = np.stack([columns, rows], axis=2)
            own = ((centre >= tile.core[0]) & (centre < tile.core[1])).all(axis=2)
            x, y = tile.offset
            owners[y : y + tile.pixels.shape[0], x : x + tile.pixels.shape[1]] += own
        assert (owners == 1).all()
        assert (np.array(owners.shape) * stride >= size).all()
    # The coarsest resolution is one tile, and it owns keypoints of any size.
    assert [tile.reach[1] == np.inf for tile in tiles] == [False] * (len(tiles) - 1) + [True]


def test_flat_images_and_small_tiles(image):
    flat = doap.extract(np.zeros((600, 700), np.uint8), "rootsift", tile=TILE)
    assert (len(flat), flat.descriptors.shape) == (0, (0, 128))
    for call in (lambda: doap.extract(image, "rootsift", tile=256), lambda: open_extractor("rootsift", tile=256)):
        with pytest.raises(ArgumentError):
            call()


def test_tiles_are_part_of_the_fingerprint_and_sets_without_them_keep_theirs():
    plain, tiled = (open_extractor("orb", tile=tile).info for tile in (None, 2048))
    assert plain.difference(tiled) == "tile is 2048 instead of None"
    earlier = {name: value for name, value in vars(plain).items() if name != "tile"}
    assert ExtractorInfo(**earlier) == plain


def test_a_feature_set_holds_the_features_of_tiles(image, tmp_path):
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "a.png"), image)
    settings = {"max_keypoints": 100, "tile": TILE}
    doap.extract_folder(tmp_path / "images", tmp_path / "f", PATCHES, workers=1, **settings)
    stored = doap.collection.FeatureSet(tmp_path / "f").read("a.png").features
    expected = doap.extract(image, PATCHES, **settings)
    np.testing.assert_array_equal(stored.frames, expected.frames)
    torch.testing.assert_close(stored.descriptors, expected.descriptors.half().float())
