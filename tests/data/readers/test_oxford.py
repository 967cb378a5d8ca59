"""Image sequences with homographies: three formats, real sequences, and their problems."""

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import DataError
from doap.data.readers import read_oxford
from doap.images import read_grey

HOMOGRAPHIES = np.stack([np.eye(3), *(np.eye(3) + np.random.default_rng(0).normal(0, 0.1, (5, 3, 3)))])


@pytest.fixture
def root(tmp_path):
    formats.write_oxford(tmp_path / "set" / "graf", HOMOGRAPHIES)
    formats.write_oxford(tmp_path / "set" / "boat", HOMOGRAPHIES, extension="pgm", xml=True)
    formats.write_hpatches_images(tmp_path / "set" / "v_wall", HOMOGRAPHIES)
    return tmp_path / "set"


def test_three_formats_are_read_alike(root):
    sequences = read_oxford(root)
    assert [sequence.name for sequence in sequences] == ["boat", "graf", "v_wall"]
    for sequence in sequences:
        np.testing.assert_array_equal(sequence.homographies, HOMOGRAPHIES)
        for number, image in enumerate(sequence.images, start=1):
            np.testing.assert_array_equal(read_grey(image), formats.random_patches(8, 10, seed=number))


@pytest.mark.parametrize("name", ["graf", "graf/img4.ppm", "graf/H1to3p"])
def test_a_missing_file_is_refused(root, name):
    path = root / name
    folder = path if path.is_dir() else root
    for file in [path] if path.is_file() else list(path.iterdir()):
        file.unlink()
    with pytest.raises(DataError):
        read_oxford(folder)


@pytest.mark.parametrize(
    "text", ["1 0 0\n0 1 0\n", "1 0 0\n0 1 0\n0 0 0\n", "nan 0 0\n0 1 0\n0 0 1\n", "", "1 0 0\n0 1\n0 0 1\n", "one\n"]
)
def test_a_homography_that_is_not_an_invertible_matrix_is_refused(root, text):
    (root / "graf" / "H1to3p").write_text(text)
    with pytest.raises(DataError):
        read_oxford(root)


@pytest.mark.parametrize("old_new", [("<cols>3", "<cols>2"), ("<data>", "<data>5 "), ("</opencv_storage>", "")])
def test_damaged_xml_is_refused(root, old_new):
    path = root / "boat" / "H1to6p.xml"
    path.write_text(path.read_text().replace(*old_new))
    with pytest.raises(DataError):
        read_oxford(root)
