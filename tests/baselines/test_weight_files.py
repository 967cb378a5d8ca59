"""Published weights of learned baselines: each file is recognised, computes what its paper defines, and is safe."""

import os
import pickle

import numpy as np
import pytest
import torch

import doap
from doap._support.errors import DataError
from doap.baselines import load_baseline

PUBLISHED = {
    "HardTFeat.pth": ("hardtfeat", "real", 128, 1.5),
    "mkd-concat-64.pth": ("mkd", "real", 128, 1.0),
    "SIFT+Boost-F.pth": ("sift-boost-f", "real", 128, 1.0),
    "SIFT+Boost-B.pth": ("sift-boost-b", "binary", 256, 1.0),
    "hashsift-256.npy": ("hashsift", "binary", 256, 6.75 / 6),
}
NETWORKS = pytest.mark.parametrize("file", ["HardTFeat.pth", "mkd-concat-64.pth"])
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
    "HashSIFT: text": np.full((256, 129), "a"),
    "HashSIFT: bits that fill no byte": np.zeros((255, 129)),
    "HashSIFT: no bits": np.zeros((0, 129)),
    "HashSIFT: no bias": np.zeros((256, 128)),
    "HashSIFT: vector": np.zeros(129),
    "HashSIFT: not finite": np.full((256, 129), np.nan),
    "HashSIFT: complex": np.zeros((256, 129), complex),
    "HashSIFT: dates": np.zeros((256, 129), "M8[s]"),
}

pytestmark = pytest.mark.data("baselines/mkd-concat-64.pth", "baselines/HardTFeat.pth", "baselines/KeyNet.pth")


class Malicious:
    """Its pickle creates a folder when it is loaded."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.fixture
def baselines(data_folder):
    return data_folder / "baselines"


def assert_refused(path):
    """Check that loading a file is an error of one line that names it."""
    with pytest.raises(DataError) as error:
        load_baseline(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", PUBLISHED)
def test_a_published_file_is_recognised_by_its_content_and_can_be_pickled(baselines, file):
    found = doap.load(baselines / file)
    assert (found.name, found.kind, found.dim, found.extent) == PUBLISHED[file]
    assert pickle.loads(pickle.dumps(found)).fingerprint() == load_baseline(baselines / file).fingerprint()


@pytest.mark.parametrize("file", ["AffNet.pth", "OriNet.pth", "KeyNet.pth"])
def test_weights_of_another_network_are_refused(baselines, file):
    assert_refused(baselines / file)


@pytest.mark.parametrize("file", PUBLISHED)
def test_a_truncated_or_overwritten_file_is_an_error_that_names_it(baselines, tmp_path, file):
    whole = (baselines / file).read_bytes()
    path, random = tmp_path / f"x{(baselines / file).suffix}", np.random.default_rng(0)
    damaged = [whole[: int(share * len(whole))] for share in (0, 0.001, 0.3, 0.99)]
    damaged += [random.bytes(200) + whole[200:] for _ in range(6)]
    for content in damaged:
        path.write_bytes(content)
        assert_refused(path)


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_content_is_an_error_that_names_the_file(tmp_path, kind):
    if isinstance(FOREIGN[kind], np.ndarray):
        np.save(tmp_path / "other.npy", FOREIGN[kind])
    else:
        torch.save(FOREIGN[kind], tmp_path / "other.pth")
    (path,) = tmp_path.iterdir()
    assert_refused(path)


@pytest.mark.parametrize("file", ["archive.pth", "plain.pth", "array.npy"])
def test_pickled_code_does_not_run(tmp_path, file):
    path, made = tmp_path / file, tmp_path / "made by the pickle"
    if file == "array.npy":
        np.save(path, np.array([[Malicious(made)]], dtype=object), allow_pickle=True)
    elif file == "archive.pth":
        torch.save({"state_dict": Malicious(made)}, path)
    else:
        path.write_bytes(pickle.dumps(Malicious(made)))
    assert_refused(path)
    assert not made.exists()


def test_a_missing_file_and_a_folder_are_errors_that_name_them(tmp_path):
    (tmp_path / "folder.npy").mkdir()
    for path in (tmp_path / "gone.pth", tmp_path / "gone.npy", tmp_path / "folder.npy", tmp_path):
        assert_refused(path)


@NETWORKS
def test_any_batch_of_patches_has_the_same_finite_unit_descriptors(baselines, file):
    baseline = load_baseline(baselines / file)
    assert baseline.patch_size == 32
    assert baseline.describe_patches(torch.zeros(0, 1, 32, 32)).shape == (0, 128)
    patches = torch.cat([torch.rand(3, 1, 32, 32), torch.full((1, 1, 32, 32), 0.4)])
    described = baseline.describe_patches(patches)
    assert described.isfinite().all()
    assert not described.requires_grad
    torch.testing.assert_close(described[:3].norm(dim=1), torch.ones(3))
    alone = torch.cat([baseline.describe_patches(patch[None]) for patch in patches])
    torch.testing.assert_close(described, alone, atol=1e-5, rtol=0)


def test_hardtfeat_equals_a_layer_by_layer_oracle(baselines):
    """The oracle only uses products and sums."""
    state = torch.load(baselines / "HardTFeat.pth", map_location="cpu", weights_only=True)["state_dict"]
    patches = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    flat = patches.flatten(1)
    mean = flat.sum(dim=1) / 1024
    deviation = (((flat - mean[:, None]) ** 2).sum(dim=1) / 1023).sqrt()
    values = (patches - mean[:, None, None, None]) / deviation[:, None, None, None]
    for layer, size in (("features.0", 7), ("features.3", 6), ("classifier.1", 8)):
        windows = values.unfold(2, size, 1).unfold(3, size, 1)
        sums = torch.einsum("nchwij,ocij->nohw", windows, state[f"{layer}.weight"])
        values = (sums + state[f"{layer}.bias"][:, None, None]).tanh()
        if layer == "features.0":
            values = values.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(4, 5))
    expected = values.flatten(1) / (values**2).sum(dim=(1, 2, 3)).sqrt()[:, None]
    found = load_baseline(baselines / "HardTFeat.pth").describe_patches(patches)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_mkd_equals_the_module_of_kornia_that_loads_the_same_file(baselines, tmp_path, monkeypatch):
    """kornia reads the file from the cache of torch.hub, where its download would be."""
    module = pytest.importorskip("kornia.feature").MKDDescriptor
    patches = torch.rand(6, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    (cache / "mkd-concat-64.pth").symlink_to(baselines / "mkd-concat-64.pth")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with torch.no_grad():
        expected = module(patch_size=32, kernel_type="concat", whitening="pcawt", training_set="liberty")(patches)
    found = load_baseline(baselines / "mkd-concat-64.pth").describe_patches(patches)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
