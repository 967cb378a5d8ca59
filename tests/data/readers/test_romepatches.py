"""RomePatches: its MATLAB files."""

import numpy as np
import pytest
from scipy.io import savemat

from data.readers import formats
from doap._support.errors import DataError
from doap.data.readers import read_romepatches

COLOUR = formats.random_patches(12, 3, 51, 51)
LABELS = [4, 9, 2, 9, 9, 9, 2, 2, 2, 4, 4, 4]
# Rec. 601 luma.
LUMA = (COLOUR * np.array([0.299, 0.587, 0.114])[None, :, None, None]).sum(axis=1)


@pytest.fixture
def root(tmp_path):
    for split in ("train", "test"):
        formats.write_romepatches(tmp_path / "rome", split, COLOUR, LABELS, queries=3)
    return tmp_path / "rome"


@pytest.mark.parametrize("stored", [COLOUR, np.moveaxis(COLOUR, 1, -1)], ids=["channels first", "channels last"])
def test_patches_are_converted_to_grey(root, stored):
    formats.write_romepatches(root, "train", stored, LABELS, queries=3)
    patches = read_romepatches(root).load("train").patches
    assert patches.dtype == np.uint8
    np.testing.assert_allclose(patches, LUMA, atol=1)


def test_grey_patches_stored_as_doubles_are_read_back(root):
    formats.write_romepatches(root, "train", COLOUR[:, 0].astype(np.float64), LABELS, queries=3)
    np.testing.assert_array_equal(read_romepatches(root).load("train").patches, COLOUR[:, 0])


def test_labels_of_queries_precede_those_of_the_database(root):
    split = read_romepatches(root).load("test")
    assert (split.labels.tolist(), split.queries) == (LABELS, 3)


def test_units_are_the_halves_with_every_point_as_one_group(root):
    rome = read_romepatches(root)
    train, test = rome.units()
    assert (train.name, test.name) == ("train", "test")
    patches = rome.load("train").patches
    groups = np.split(train.patches, train.counts.cumsum()[:-1])
    for label, group in zip([2, 4, 9], groups, strict=True):
        np.testing.assert_array_equal(group, patches[np.array(LABELS) == label])


def test_a_single_half_can_be_read(root):
    (root / "patch_retrieval_Rome_test.mat").unlink()
    assert read_romepatches(root).splits == ("train",)


@pytest.mark.parametrize("labels", [{"labels_gt": np.ones(3), "labels": np.ones(4)}, {"labels": np.ones(12)}])
def test_a_wrong_number_of_labels_is_refused(root, labels):
    savemat(root / "patch_retrieval_Rome_train_labels.mat", labels)
    with pytest.raises(DataError):
        read_romepatches(root).load("train")


@pytest.mark.parametrize(
    "patches",
    [COLOUR[:, 0] / 255, *(formats.random_patches(12, *shape) for shape in [(51 * 51,), (4, 51, 51), (51, 50)])],
    ids=["0 to 1", "flat", "four channels", "not square"],
)
def test_patches_of_another_range_or_shape_are_refused(root, patches):
    formats.write_romepatches(root, "train", patches, LABELS, queries=3)
    with pytest.raises(DataError):
        read_romepatches(root).load("train")


def test_a_file_of_another_format_is_refused(root):
    (root / "patch_retrieval_Rome_train.mat").write_bytes(b"no MATLAB file" * 20)
    with pytest.raises(DataError):
        read_romepatches(root).load("train")
