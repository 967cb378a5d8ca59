"""PhotoTour: sheets, points, pairs, and groups."""

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import ArgumentError, DataError
from doap.data.readers import phototour, read_phototour

PATCHES = formats.random_patches(300, 64, 64)
# Unsorted groups of 1 to 4 patches.
POINTS = np.random.default_rng(1).permutation(np.repeat(np.arange(120), np.tile([1, 2, 3, 4], 30))).tolist()
IMAGES = [index % 7 for index in range(300)]
PAIRS = [(0, 299), (5, 6), (256, 255)]


@pytest.fixture
def root(tmp_path):
    return formats.write_phototour(tmp_path / "liberty", PATCHES, POINTS, IMAGES, PAIRS)


@pytest.mark.parametrize("indices", [range(300), [299, 0, 256, 0]])
def test_patches_are_loaded_in_the_requested_order(root, indices):
    np.testing.assert_array_equal(read_phototour(root).load(indices), PATCHES[list(indices)])


def test_points_pairs_and_reference_images_are_read_back(root):
    tour = read_phototour(root)
    assert (tour.points.tolist(), tour.reference_images.tolist()) == (POINTS, IMAGES)
    indices, positive = tour.pairs()
    assert indices.tolist() == [list(pair) for pair in PAIRS]
    assert positive.tolist() == [POINTS[a] == POINTS[b] for a, b in PAIRS]
    (root / "interest.txt").unlink()
    assert read_phototour(root).reference_images is None


@pytest.mark.parametrize("per_unit", [1, 50, 1000])
def test_units_contain_every_point_as_one_group(root, per_unit, monkeypatch):
    monkeypatch.setattr(phototour, "PER_UNIT", per_unit)
    units = list(read_phototour(root).units())
    groups = [group for unit in units for group in np.split(unit.patches, unit.counts.cumsum()[:-1])]
    assert len({unit.name for unit in units}) == len(units)
    assert max(len(unit.patches) for unit in units) < per_unit + 4
    for point, group in enumerate(groups):
        np.testing.assert_array_equal(group, PATCHES[np.array(POINTS) == point])
    assert [unit.name for unit in read_phototour(root).units(skip=2)] == [unit.name for unit in units][2:]


def test_an_index_in_the_padding_of_the_last_sheet_is_refused(root):
    with pytest.raises(ArgumentError):
        read_phototour(root).load([300])


@pytest.mark.parametrize(
    "damage",
    [
        lambda root: [sheet.unlink() for sheet in root.glob("*.bmp")],
        lambda root: (root / "patches0000.bmp").unlink(),
        lambda root: (root / "info.txt").unlink(),
        lambda root: (root / "info.txt").write_text(""),
        lambda root: (root / "info.txt").write_text("one 0\n"),
        lambda root: formats.write_lines(root / "info.txt", [(0, 0)] * 256),
        lambda root: formats.write_lines(root / "info.txt", [(0, 0)] * 513),
        lambda root: formats.write_lines(root / "interest.txt", [(0, 1)]),
        lambda root: formats.write_image(root / "patches0001.bmp", formats.random_patches(64, 128)),
        lambda root: (root / "patches0001.bmp").write_text("no image"),
        lambda root: (root / "m50_100000_100000_0.txt").unlink(),
        lambda root: formats.write_lines(root / "m50_100000_100000_0.txt", [(0, POINTS[0], 0, 300, 1, 0, 0)]),
    ],
)
def test_missing_files_and_files_of_another_dataset_are_refused(root, damage):
    damage(root)
    with pytest.raises(DataError):
        [(tour.load(range(300)), tour.pairs()) for tour in [read_phototour(root)]]
