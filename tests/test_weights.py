"""The descriptors that come with doap: small, licensed, loaded by name without a network, better than RootSIFT."""

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch
from safetensors import safe_open

import doap
from doap.baselines import rootsift, teblid
from doap.descriptor import SHIPPED
from doap.images import centres, read_grey
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp

EACH = pytest.mark.parametrize("name", SHIPPED)
# Grants that let anybody train on a photo and pass the weights on.
LICENCES = ("CC0", "Public domain", "CC-BY", "CC BY", "Apache-2.0", "PDM")


def test_both_kinds_ship():
    assert list(SHIPPED) == ["doap-128", "doap-256bit"]


@EACH
def test_a_shipped_file_is_small_half_precise_and_has_a_card(name):
    path = SHIPPED[name]
    assert path.stat().st_size < 3_000_000
    with safe_open(path, framework="pt") as file:
        kinds = {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118 - not a dict
    assert kinds <= {"F16", "I64"}
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    assert card.startswith(f"# {name}\n")
    for heading in ("Where it fails", "Figures", "Photographs", "Recipe"):
        assert f"## {heading}" in card


@EACH
def test_every_training_photo_is_in_the_ledger_with_a_permissive_licence(name):
    ledger = doap.load(name).metadata["ledger"]
    assert len(ledger) > 1000
    assert {row["split"] for row in ledger} == {"train"}
    strange = {row["licence"] for row in ledger if not row["licence"].startswith(LICENCES)}
    assert not strange
    assert all(row["author"] or row["source"] for row in ledger)


@EACH
def test_metadata_tell_how_it_was_made_and_nothing_of_the_machine(name):
    told = doap.load(name).metadata
    assert told["recipe"]["loss"]["name"] == "listwise-ap"
    assert not any(word in json.dumps(told) for word in ("/tmp", "/home", "/root", "/work"))


def test_names_load_from_anywhere_without_a_connection(tmp_path):
    code = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('a connection was asked for')\n"
        "socket.socket.connect = refuse\n"
        "import doap, torch\n"
        "print(doap.load('doap-128').describe(torch.rand(2, 1, 32, 32)).shape)\n"
        "print(doap.load('doap-256bit').describe(torch.rand(2, 1, 32, 32)).shape)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert ran.stdout.split("\n")[:2] == ["torch.Size([2, 128])", "torch.Size([2, 32])"]


@EACH
def test_real_descriptors_are_unit_rows_and_bits_are_balanced(name):
    descriptor = doap.load(name)
    described = descriptor.describe(torch.rand(64, 1, 32, 32, generator=torch.Generator().manual_seed(0)))
    if descriptor.kind == "real":
        torch.testing.assert_close(described.norm(dim=1), torch.ones(64))
    else:
        share = np.unpackbits(described.numpy()).mean()
        assert 0.3 < share < 0.7


@pytest.mark.data
@pytest.mark.parametrize(("name", "peer"), [("doap-128", rootsift), ("doap-256bit", teblid)])
def test_more_right_matches_than_its_peer_on_photos_it_never_saw(name, peer, data_folder):
    """Made-up views of photos of the split val, which weights may be chosen on."""
    photos = sorted((data_folder / "photos" / "taj_mahal").glob("*.jpg"))[:6]
    right = {"ours": 0, "peer": 0}
    random = np.random.default_rng(0)
    for photo in photos:
        image = read_grey(photo)
        homography = random_homography(image.shape, SyntheticViews(), random)
        other = change_appearance(warp(image, homography), random)
        for who, descriptor in (("ours", doap.load(name)), ("peer", peer())):
            seen, again = (doap.extract(one, descriptor, max_keypoints=1000) for one in (image, other))
            matches = doap.match(seen, again)
            expected = cv2.perspectiveTransform(centres(seen.frames)[None, matches[:, 0]].astype(float), homography)[0]
            off = np.linalg.norm(expected - centres(again.frames)[matches[:, 1]], axis=1)
            right[who] += int((off < 3).sum())
    assert right["ours"] > right["peer"]
