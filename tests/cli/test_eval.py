"""The `doap eval` command."""

import json

import cv2
import numpy as np
import pytest

from doap.evaluation import read_results
from doap.images import read_grey
from oracles.photos import write_photo


@pytest.fixture(scope="module")
def sequences(tmp_path_factory):
    """One sequence of six images in Oxford's layout: a photo, increasingly rotated."""
    folder = tmp_path_factory.mktemp("data") / "turned"
    folder.mkdir()
    image = read_grey(write_photo(folder.parent / "photo.png", 0))
    for number in range(1, 7):
        turn = np.vstack([cv2.getRotationMatrix2D((160, 120), 6.0 * (number - 1), 1), [0, 0, 1]])
        cv2.imwrite(str(folder / f"img{number}.png"), cv2.warpPerspective(image, turn, (320, 240)))
        if number > 1:
            np.savetxt(folder / f"H1to{number}p", turn)
    return folder.parent


def test_descriptors_are_evaluated_side_by_side(doap, sequences, tmp_path):
    out = tmp_path / "results"
    ran = doap("eval", "rootsift", "controls", "oxford", sequences, "--out", out, "--max-keypoints", 200, "--json")
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert set(values) == {"figures", "results", "skipped"}
    assert values["skipped"] == {}
    assert list(values["figures"]) == ["rootsift", "constant", "random", "shuffled"]
    right, *wrong = (one["mAP"]["value"] for one in values["figures"].values())
    assert right > 0.5
    assert max(wrong) < 0.02
    read = read_results(values["results"])["rootsift"]
    assert read.protocol["detector"] == "sift"
    assert read.headline.total.value == right


def test_no_result_is_a_failure(doap, sequences, tmp_path):
    ran = doap("eval", "dsp-sift", "oxford", sequences, "--out", tmp_path, "--json")
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["figures"] == {}
