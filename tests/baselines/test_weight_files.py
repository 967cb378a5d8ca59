"""Files of learned baselines: each is recognised, and a damaged, foreign or malicious one is an error that names it."""

from __future__ import annotations

import os
import pickle
import re

import numpy as np
import pytest
import torch

import doap
from doap._support.errors import DataError
from doap.baselines import load_baseline

PUBLISHED = {
    "weights_tfeat/tfeat-liberty.params": ("tfeat", "real", 128, 1.0),
    "baselines/HardTFeat.pth": ("hardtfeat", "real", 128, 1.5),
    "baselines/mkd-concat-64.pth": ("mkd", "real", 128, 1.0),
    "baselines/SIFT+Boost-F.pth": ("sift-boost-f", "real", 128, 1.0),
    "baselines/SIFT+Boost-B.pth": ("sift-boost-b", "binary", 256, 1.0),
    "baselines/hashsift-256.npy": ("hashsift", "binary", 256, 6.75 / 6),
}
FOREIGN = {
    "list": [1],
    "tensor": torch.zeros(3),
    "none": None,
    "text": "weights",
    "numbers as names": {1: 2},
    "MKD: tensor": {"liberty": torch.zeros(3)},
    "MKD: none": {"liberty": None},
    "MKD: number": {"liberty": {"pca": 1}},
    "MKD: small": {"liberty": {"pca": {"mean": torch.zeros(3), "eigvecs": torch.eye(3), "eigvals": torch.ones(3)}}},
    "HardTFeat: none": {"state_dict": None},
    "HardTFeat: tensor": {"state_dict": torch.zeros(3)},
    "HardTFeat: one layer": {"state_dict": {"classifier.1.weight": torch.zeros(128, 64, 8, 8)}},
    "FeatureBooster: numbers": {"kenc.encoder.0.weight": 1, "final_proj.weight": 1},
    "FeatureBooster: two layers": {
        "kenc.encoder.0.weight": torch.zeros(32, 4),
        "final_proj.weight": torch.zeros(128, 128),
    },
    "TFeat: numbers": {"features.1.weight": 1, "descr.0.weight": 2},
}
ARRAYS = {
    "text": np.full((256, 129), "a"),
    "bits that fill no byte": np.zeros((255, 129)),
    "no bits": np.zeros((0, 129)),
    "no bias": np.zeros((256, 128)),
    "vector": np.zeros(129),
    "not finite": np.full((256, 129), np.nan),
    "complex": np.zeros((256, 129), complex),
    "dates": np.zeros((256, 129), "M8[s]"),
}


class Malicious:
    """Its pickle creates a folder when it is loaded."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def assert_names(path, error: pytest.ExceptionInfo[DataError]) -> None:
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text


@pytest.mark.data("baselines/mkd-concat-64.pth")
@pytest.mark.parametrize("file", PUBLISHED)
def test_a_published_file_is_recognised_by_its_content(data_folder, file):
    for load in (load_baseline, doap.load):
        found = load(data_folder / file)
        assert (found.name, found.kind, found.dim, found.extent) == PUBLISHED[file]


@pytest.mark.data("baselines/mkd-concat-64.pth")
@pytest.mark.parametrize("file", PUBLISHED)
def test_a_published_descriptor_is_the_same_after_pickling(data_folder, file):
    baseline = load_baseline(data_folder / file)
    assert pickle.loads(pickle.dumps(baseline)).fingerprint() == baseline.fingerprint()


@pytest.mark.data("baselines/KeyNet.pth")
@pytest.mark.parametrize("file", ["baselines/AffNet.pth", "baselines/OriNet.pth", "baselines/KeyNet.pth"])
def test_weights_of_another_network_are_refused(data_folder, file):
    with pytest.raises(DataError, match="expected the weights of tfeat, hardtfeat, mkd, featurebooster, hashsift") as e:
        load_baseline(data_folder / file)
    assert_names(data_folder / file, e)


@pytest.mark.data("baselines/mkd-concat-64.pth")
@pytest.mark.parametrize("file", PUBLISHED)
def test_a_truncated_or_overwritten_file_is_an_error_that_names_it(data_folder, tmp_path, file):
    whole = (data_folder / file).read_bytes()
    path, random = tmp_path / f"x{(data_folder / file).suffix}", np.random.default_rng(0)
    damaged = [whole[: int(share * len(whole))] for share in (0, 0.001, 0.3, 0.99)]
    for _ in range(6):
        changed = bytearray(whole)
        changed[:200] = random.bytes(200)
        damaged.append(bytes(changed))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DataError, match="not a file of weights, or a damaged one") as error:
            load_baseline(path)
        assert_names(path, error)


@pytest.mark.parametrize("kind", FOREIGN)
def test_another_checkpoint_is_an_error_that_names_it(tmp_path, kind):
    path = tmp_path / "other.pth"
    torch.save(FOREIGN[kind], path)
    with pytest.raises(DataError, match=r"expected the weights of|the weights do not fit") as error:
        load_baseline(path)
    assert_names(path, error)


@pytest.mark.parametrize("kind", ARRAYS)
def test_another_array_is_an_error_that_names_it(tmp_path, kind):
    path = tmp_path / "other.npy"
    np.save(path, ARRAYS[kind])
    with pytest.raises(DataError, match=r"expected the weights of|the weights do not fit hashsift") as error:
        load_baseline(path)
    assert_names(path, error)


@pytest.mark.parametrize("suffix", [".pth", ".params", ".npy"])
def test_pickled_code_does_not_run(tmp_path, suffix):
    path, made = tmp_path / f"bad{suffix}", tmp_path / "made by the pickle"
    if suffix == ".npy":
        np.save(path, np.array([[Malicious(made)]], dtype=object), allow_pickle=True)
    elif suffix == ".pth":
        torch.save({"state_dict": Malicious(made)}, path)
    else:
        path.write_bytes(pickle.dumps(Malicious(made)))
    with pytest.raises(DataError, match="not a file of weights") as error:
        load_baseline(path)
    assert_names(path, error)
    assert not made.exists()


def test_a_missing_file_and_a_folder_are_errors_that_name_them(tmp_path):
    (tmp_path / "folder.npy").mkdir()
    for path in (tmp_path / "gone.pth", tmp_path / "gone.npy", tmp_path / "folder.npy", tmp_path):
        with pytest.raises(DataError, match=re.escape(str(path))):
            load_baseline(path)
