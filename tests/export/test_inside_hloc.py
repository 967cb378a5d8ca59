"""doap inside hloc, whose contract `hloc_package` repeats: hloc itself cannot be installed from a package index."""

import importlib
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import doap
from doap._support.errors import ArgumentError
from doap.export.hloc import feature_arrays
from doap.export.inside_hloc import hloc_confs
from doap.metrics import hamming, unit_vectors
from oracles.photos import write_photo

SAMPLES = sorted((Path(doap.__file__).parent / "images" / "samples").glob("*.jpg"))
BASE_MODEL = """
from torch import nn

class BaseModel(nn.Module):
    default_conf = {}
    required_inputs = []

    def __init__(self, conf):
        super().__init__()
        self.conf = {**self.default_conf, **conf}
        self._init(self.conf)

    def forward(self, data):
        assert all(key in data for key in self.required_inputs)
        return self._forward(data)
"""


@pytest.fixture
def hloc_package(tmp_path, monkeypatch):
    """A package with hloc's base class, in the places where hloc has them."""
    for folder in ("extractors", "utils"):
        (tmp_path / "hloc" / folder).mkdir(parents=True)
        (tmp_path / "hloc" / folder / "__init__.py").touch()
    (tmp_path / "hloc" / "__init__.py").touch()
    (tmp_path / "hloc" / "utils" / "base_model.py").write_text(BASE_MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "hloc"]:
        del sys.modules[name]


def load_as_hloc_does(conf):
    """Import the module that a configuration names and return the one model class that it defines."""
    path = f"hloc.extractors.{conf['model']['name']}"
    module = __import__(path, fromlist=[""])
    base = importlib.import_module("hloc.utils.base_model").BaseModel
    (found,) = [
        one
        for _, one in inspect.getmembers(module, inspect.isclass)
        if one.__module__ == path and issubclass(one, base)
    ]
    return found(conf["model"]).eval()


@pytest.mark.usefixtures("hloc_package")
@pytest.mark.parametrize("name", ["rootsift", "doap-256bit"])
def test_hloc_gets_the_features_that_doap_writes_to_its_files(name, tmp_path):
    grey = doap.images.read_grey(write_photo(tmp_path / "a.png", 0, 240, 320))
    features, _ = hloc_confs(name, max_keypoints=100)
    assert features["preprocessing"] == {"grayscale": True}
    model = load_as_hloc_does(features)
    found = model({"image": torch.from_numpy(grey)[None, None] / 255})
    expected = feature_arrays(doap.extract(grey, name, max_keypoints=100))
    for key in ("keypoints", "scores"):
        np.testing.assert_array_equal(found[key][0], expected[key])
    described = found["descriptors"][0].T
    if name == "rootsift":
        np.testing.assert_array_equal(described, expected["descriptors"].T)
    else:
        bits = torch.from_numpy(expected["descriptors"].T.copy())
        torch.testing.assert_close(described @ described.T, 1 - 2 * hamming(bits, bits) / 256)


@pytest.mark.usefixtures("hloc_package")
def test_two_descriptors_have_their_own_names_and_ratios():
    confs = [hloc_confs(name) for name in ("rootsift", "doap-128")]
    assert len({features["model"]["name"] for features, _ in confs}) == 2
    assert len({part["output"] for pair in confs for part in pair}) == 4
    ratios = [matches["model"]["ratio_threshold"] for _, matches in confs]
    assert ratios == [doap.load(name).ratio for name in ("rootsift", "doap-128")]


def match_as_hloc_does(descriptors0, descriptors1, ratio):
    """Mutual nearest neighbours of unit vectors (N, D), with the ratio test on squared distances in both directions."""
    found = []
    for similarity in (descriptors0 @ descriptors1.T, descriptors1 @ descriptors0.T):
        nearest = similarity.topk(2)
        distances = 2 * (1 - nearest.values)
        found.append(torch.where(distances[:, 0] <= ratio**2 * distances[:, 1], nearest.indices[:, 0], -1))
    there, back = found
    return [(row, other) for row, other in enumerate(there.tolist()) if other >= 0 and back[other] == row]


@pytest.mark.usefixtures("hloc_package")
@pytest.mark.parametrize("name", ["rootsift", "doap-256bit"])
def test_the_matches_of_hloc_are_those_of_doap(name):
    _, matches = hloc_confs(name)
    both = [doap.extract(path, name, max_keypoints=500) for path in SAMPLES]
    described = [unit_vectors(one.descriptors) if name == "doap-256bit" else one.descriptors for one in both]
    expected = doap.match(*both, ratio=doap.load(name).ratio).indices
    assert len(expected) > 50
    found = match_as_hloc_does(*described, matches["model"]["ratio_threshold"])
    # Equality passes hloc's ratio test, and not doap's.
    assert set(map(tuple, expected.tolist())) <= set(found)
    assert len(found) <= len(expected) + 2


def test_without_hloc_the_error_says_what_is_missing():
    with pytest.raises(ArgumentError, match="hloc"):
        hloc_confs("rootsift")
