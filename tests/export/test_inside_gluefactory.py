"""doap inside glue-factory, whose contract the fixture repeats: it cannot be installed from a package index."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import yaml

import doap
from doap.export.opencv import Feature2D
from doap.metrics import hamming
from oracles.photos import write_photo

NAME = "doap.export.inside_gluefactory"
CONFS = sorted((Path(__file__).parents[2] / "examples" / "integrations" / "gluefactory").glob("*.yaml"))
BASE_MODEL = """
from abc import ABC, abstractmethod
from torch import nn

class BaseModel(nn.Module, ABC):
    default_conf = {}
    required_data_keys = []

    def __init__(self, conf):
        super().__init__()
        self.conf = {**self.default_conf, **conf}
        self._init(self.conf)

    def forward(self, data):
        assert all(key in data for key in self.required_data_keys)
        return self._forward(data)

    @abstractmethod
    def _init(self, conf): ...

    @abstractmethod
    def _forward(self, data): ...

    @abstractmethod
    def loss(self, pred, data): ...
"""


@pytest.fixture
def get_model(tmp_path, monkeypatch):
    """A function that finds models by name as glue-factory does, with its base class where glue-factory has it."""
    folder = tmp_path / "gluefactory" / "models"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder / "base_model.py").write_text(BASE_MODEL)
    monkeypatch.syspath_prepend(tmp_path)

    def get_model(name):
        assert importlib.util.find_spec(name)
        module, base = importlib.import_module(name), importlib.import_module("gluefactory.models.base_model").BaseModel
        classes = [one for _, one in inspect.getmembers(module, inspect.isclass) if one.__module__ == name]
        found = [one for one in classes if issubclass(one, base)]
        return found[0] if len(found) == 1 else module.__main_model__

    yield get_model
    for name in [name for name in sys.modules if name.split(".")[0] == "gluefactory"]:
        del sys.modules[name]


@pytest.fixture
def photo(tmp_path):
    """Pixels (H, W, 3) of a photo with colours, as from `cv2.imread`."""
    greys = [cv2.imread(str(write_photo(tmp_path / f"{seed}.png", seed)), cv2.IMREAD_GRAYSCALE) for seed in range(3)]
    return np.stack([greys[0] // 2 + part // 2 for part in greys], 2)


def as_view(*photos):
    """Photos of one size as a batch (B, 3, H, W) of glue-factory: red, green, blue in 0…1."""
    return {"image": torch.stack([torch.tensor(one[..., ::-1] / 255).permute(2, 0, 1).float() for one in photos])}


@pytest.mark.parametrize("name", ["rootsift", "doap-256bit"])
def test_glue_factory_gets_the_features_of_doap(name, photo, get_model):
    model = get_model(NAME)({"name": NAME, "descriptor": name, "max_num_keypoints": 100}).eval()
    found = model(as_view(photo))
    assert {key: (len(value), value.dtype) for key, value in found.items()} == dict.fromkeys(
        ("keypoints", "descriptors", "scales", "oris", "keypoint_scores"), (1, torch.float32)
    )
    expected = doap.extract(photo, name, max_keypoints=100)
    np.testing.assert_array_equal(found["keypoints"][0], expected.keypoints + 0.5)
    np.testing.assert_array_equal(found["keypoint_scores"][0], expected.responses)
    described = found["descriptors"][0]
    if name == "rootsift":
        torch.testing.assert_close(described, expected.descriptors, rtol=0, atol=0)
    else:
        bits = expected.descriptors
        torch.testing.assert_close(described @ described.T, 1 - 2 * hamming(bits, bits) / 256)


def test_scales_and_orientations_are_those_of_opencv(photo, get_model):
    found = get_model(NAME)({"descriptor": "rootsift", "max_num_keypoints": 50})(as_view(photo))
    keypoints = Feature2D("rootsift", max_keypoints=50).detect(photo)
    np.testing.assert_allclose(found["scales"][0], [one.size / 2 for one in keypoints], rtol=1e-5)
    turns = found["oris"][0].numpy() - np.radians([one.angle for one in keypoints])
    np.testing.assert_allclose(np.cos(turns), 1, atol=1e-6)


def test_an_image_with_fewer_keypoints_is_padded_with_zeros(photo, get_model):
    model = get_model(NAME)({"descriptor": "rootsift"})
    alone, both = model(as_view(photo)), model(as_view(photo, np.full_like(photo, 128)))
    for key, value in both.items():
        torch.testing.assert_close(value[0], alone[key][0], rtol=0, atol=0)
        assert value.shape[1] > 50
        assert not value[1].any()


def test_padding_has_no_keypoints(photo, get_model):
    model = get_model(NAME)({"descriptor": "rootsift"})
    height, width, _ = photo.shape
    padded = np.pad(photo, ((0, 40), (0, 60), (0, 0)))
    found = model({**as_view(padded), "image_size": torch.tensor([[width, height]])})
    for key, value in model(as_view(photo)).items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=0)


def test_glue_factory_skips_the_model_when_it_sums_losses(get_model):
    with pytest.raises(NotImplementedError):
        get_model(NAME)({}).loss({}, {})


def test_grey_images_are_accepted(photo, get_model):
    model, grey = get_model(NAME)({"descriptor": "rootsift"}), photo[..., 0]
    found = model({"image": torch.tensor(grey / 255).float()[None, None]})
    np.testing.assert_array_equal(found["keypoints"][0], doap.extract(grey, "rootsift").keypoints[:2048] + 0.5)


@pytest.mark.parametrize("path", CONFS, ids=lambda path: path.stem)
def test_a_configuration_has_the_options_of_the_model_and_the_values_of_the_descriptor(path, get_model):
    conf = yaml.safe_load(path.read_text(encoding="utf-8"))["model"]
    options, matcher = conf["extractor"], conf["matcher"]
    model = get_model(options["name"])
    assert options.keys() - {"name", "trainable"} <= model.default_conf.keys()
    descriptor = doap.load(options["descriptor"])
    assert matcher.get("ratio_thresh", descriptor.ratio) == descriptor.ratio
    assert matcher.get("input_dim", descriptor.dim) == descriptor.dim


def test_there_are_configurations_to_evaluate_and_to_train():
    assert [path.stem for path in CONFS] == ["doap+NN", "doap+lightglue_homography"]
