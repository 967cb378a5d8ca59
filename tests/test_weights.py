"""The shipped descriptors: small, licensed, available offline, and better than their baselines."""

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from safetensors import safe_open

import doap
from doap.baselines import rootsift, teblid
from doap.descriptor import SHIPPED
from doap.detectors import sift
from doap.images import read_grey, shrink
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from doap.training.config import read_recipe
from oracles.interpreter import run_python

EACH = pytest.mark.parametrize("name", SHIPPED)
RECIPES = Path(__file__).parents[1] / "recipes" / "weights"
# Licences that permit training on a photo and redistributing the weights.
LICENCES = ("CC0", "Public domain", "CC-BY", "CC BY", "Apache-2.0", "PDM")


@EACH
def test_a_shipped_file_is_small_has_float16_weights_and_a_model_card(name):
    path = SHIPPED[name]
    assert path.stat().st_size < 3_000_000
    with safe_open(path, framework="pt") as file:
        kinds = {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118 - not a dict
    assert kinds <= {"F16", "I64"}
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    assert card.startswith(f"# {name}\n")
    for heading in ("Intended use", "Limitations", "Evaluation", "Training data and licences", "Training"):
        assert f"## {heading}" in card


@EACH
def test_every_training_photo_is_in_the_ledger_with_a_permissive_licence(name):
    ledger = doap.load(name).metadata["ledger"]
    assert len(ledger) > (500 if name == "doap-fast" else 1000)
    assert {row["split"] for row in ledger} == {"train"}
    strange = {row["licence"] for row in ledger if not row["licence"].startswith(LICENCES)}
    assert not strange
    assert all(row["author"] or row["source"] for row in ledger)


@EACH
def test_the_metadata_contain_the_recipe_and_a_ratio_and_no_machine_paths(name):
    metadata = doap.load(name).metadata
    assert "ratio" in metadata
    assert metadata["recipe"]["loss"]["name"] == ("listwise-ap" if name == "doap-256bit" else "regularised-ap")
    assert not any(word in json.dumps(metadata) for word in ("/tmp", "/home", "/root", "/work"))


@pytest.mark.parametrize(
    ("name", "recipe"), [("doap-128", "4-tracks"), ("doap-256bit", "5-bits"), ("doap-fast", "6-fast")]
)
def test_the_recipe_in_the_repository_has_the_settings_that_the_weights_were_trained_with(name, recipe):
    """The metadata are a record: they may have settings, and names of losses, that no longer exist."""
    recorded, repository = doap.load(name).metadata["recipe"], read_recipe(RECIPES / f"{recipe}.toml")
    for section in ("sampler", "augmentation", "loss", "optimiser"):
        settings = getattr(repository, section).model_dump()
        both = settings.keys() & recorded[section].keys() - ({"name"} if section == "loss" else set())
        assert len(both) > 1
        assert {key: settings[key] for key in both} == {key: recorded[section][key] for key in both}


def test_shipped_descriptors_load_from_any_folder_without_a_connection(tmp_path):
    code = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('a connection was requested')\n"
        "socket.socket.connect = refuse\n"
        "import doap, torch\n"
        "print(doap.load('doap-128').describe_patches(torch.rand(2, 1, 32, 32)).shape)\n"
        "print(doap.load('doap-256bit').describe_patches(torch.rand(2, 1, 32, 32)).shape)\n"
        "import sys\n"
        "print('sympy' in sys.modules)\n"
    )
    *shapes, compiler_libraries = run_python("-c", code, folder=tmp_path).stdout.splitlines()
    assert shapes == ["torch.Size([2, 128])", "torch.Size([2, 32])"]
    # They take longer to import than the descriptors to load.
    assert compiler_libraries == "False"


@pytest.mark.data("photos")
@pytest.mark.parametrize(
    ("name", "baseline"), [("doap-128", rootsift), ("doap-256bit", teblid), ("doap-fast", rootsift)]
)
def test_more_correct_matches_than_the_baseline_on_photos_outside_the_training_set(name, baseline, data_folder):
    """On synthetic views of photos of the validation split, at their strongest keypoints."""
    photos = sorted((data_folder / "photos" / "taj_mahal").glob("*.jpg"))[:1]
    describers = {"shipped": doap.load(name), "baseline": baseline()}
    correct, detector = dict.fromkeys(describers, 0), replace(sift(), ranks_by_size=False)
    random = np.random.default_rng(0)
    for photo in photos:
        image, _ = shrink(read_grey(photo), 800)
        homography = random_homography(image.shape, SyntheticViews(), random)
        other = change_appearance(warp(image, homography), random)
        for label, descriptor in describers.items():
            features0, features1 = (
                doap.extract(one, descriptor, detector=detector, max_keypoints=400) for one in (image, other)
            )
            points0, points1 = doap.match(features0, features1).points(features0, features1)
            expected = cv2.perspectiveTransform(points0[None].astype(float), homography)[0]
            errors = np.linalg.norm(expected - points1, axis=1)
            correct[label] += int((errors < 3).sum())
    assert correct["shipped"] > correct["baseline"]
