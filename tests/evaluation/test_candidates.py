"""Candidates get short, unique names, and describe what their descriptors describe."""

import numpy as np
import pytest
import torch

from doap.baselines import rootsift
from doap.describer import from_function
from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.evaluation.candidates import open_candidate, open_candidates
from doap.extractor import KeypointExtractor
from doap.images import extract_patches, frames_from_arrays
from doap.matching import AdaLAM
from doap.pipeline import describe_patches

IMAGE = np.random.default_rng(1).integers(0, 256, (80, 90), dtype=np.uint8)

CODE = """
def mean(patches):
    return patches.mean(dim=(2, 3))
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def weights(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        Descriptor.build(dim=16).save(tmp_path / folder / "best.safetensors")
    return tmp_path


def test_names_are_short_and_unique(weights, code):
    paths = [weights / folder / "best.safetensors" for folder in ("a", "b")]
    opened = open_candidates([*map(str, paths), paths[0], "orb", f"{code}:mean"])
    assert list(opened) == ["best", "best-2", "orb", "mean"]
    assert {name: one.file for name, one in opened.items() if one.file} == {"best": paths[0], "best-2": paths[1]}


def test_describers_are_used_as_they_are():
    baseline, descriptor = rootsift(), Descriptor.build(dim=16)
    opened = open_candidates([baseline, descriptor, baseline])
    assert [(name, one.describer) for name, one in opened.items()] == [
        ("rootsift", baseline),
        ("descriptor", descriptor),
        ("rootsift-2", baseline),
    ]


def test_a_mapping_chooses_the_names(weights):
    opened = open_candidates({"mine": weights / "a" / "best.safetensors", "chance": "random", "theirs": rootsift()})
    assert list(opened) == ["mine", "chance", "theirs"]
    assert opened["mine"].file == weights / "a" / "best.safetensors"
    assert opened["chance"].describer.name == "random"


def test_frames_are_described_from_their_patches_and_timed():
    frames = frames_from_arrays([[40, 30], [50, 45]], [12, 9], [20, 75])
    means = from_function(lambda patches: patches.mean(dim=3)[:, 0])
    candidate = open_candidate(means)
    expected = describe_patches(means, extract_patches(IMAGE, frames, 32))
    assert torch.equal(candidate.describe(IMAGE, frames), expected)
    assert candidate.seconds > 0


def test_an_extractor_extracts_with_its_own_detector():
    extractor = KeypointExtractor(rootsift(), sift())
    found, expected = open_candidate(extractor).extract(IMAGE, 12), extractor.extract(IMAGE, max_keypoints=12)
    assert np.array_equal(found.frames, expected.frames)
    assert torch.equal(found.descriptors, expected.descriptors)
    assert found.image_size == IMAGE.shape


def test_adalam_is_an_ending_of_any_name():
    (name,), (candidate,) = zip(*open_candidates(["rootsift+adalam"]).items(), strict=True)
    assert name == "rootsift+adalam"
    assert isinstance(candidate.matcher, AdaLAM)
    assert candidate.fingerprint() == open_candidates("rootsift")["rootsift"].fingerprint()
