"""The messages that users meet most name the subject, what was expected, and the remedy."""

import sys

import numpy as np
import pytest
import torch

import doap
from doap._support.errors import DoapError, import_extra
from doap.baselines import colmap_rootsift
from doap.collection import ExtractorInfo, FeatureSet, Index, MilvusIndex, build_index
from doap.data import build_from_colmap, build_from_images, check_set, open_set
from doap.descriptor import Descriptor
from doap.detectors import as_detector, sift
from doap.evaluation import write_report
from doap.evaluation.candidates import open_candidate
from doap.evaluation.run import open_benchmark
from doap.evaluation.scenes import split_scenes
from doap.export.pairs import resolve_pairs
from doap.images import read_grey
from doap.training import Config, read_recipe, train
from doap.types import Features
from oracles.coded_patches import write_units
from oracles.feature_sets import random_features, write_features
from oracles.photos import write_photo
from oracles.plane_scene import write_scene


def written(path, content=b""):
    path.write_bytes(content)
    return path


def write_set(folder):
    return write_units(folder / "set", 8, [("a", "a", [2])])


def open_set_without_meta(folder):
    (write_set(folder) / "meta.json").unlink()
    open_set(folder / "set")


def check_changed_patches(folder):
    patches = write_set(folder) / "patches.npy"
    written(patches, patches.read_bytes()[:-1] + b"a")
    check_set(folder / "set")


def build_without_an_image(folder):
    write_scene(folder, np.column_stack([np.random.default_rng(0).uniform(-1, 1, (20, 2)), np.zeros(20)]))
    (folder / "images" / "3.png").unlink()
    build_from_colmap(folder / "sparse", folder / "images", folder / "set")


def build_with_a_ledger(folder):
    write_photo(folder / "a.png", 0)
    ledger = written(folder / "ledger.csv", b"file,scene,split\na.png,a,train\na.png\n")
    build_from_images(folder, folder / "set", ledger=ledger)


def load_weights(folder, network="l2net", format_=1):
    descriptor = Descriptor.build(dim=16)
    descriptor.spec = descriptor.spec.model_copy(update={"network": network})
    path = descriptor.save(folder / "d.safetensors")
    Descriptor.load(written(path, path.read_bytes().replace(rb"\"format\":1", rb"\"format\":%d" % format_)))


def match_different_descriptors(folder):
    found = [Features(np.zeros((1, 2, 3), np.float32), np.ones(1), torch.zeros(1, 8), (9, 9), name) for name in "ab"]
    doap.match(*found)


def with_index(call):
    """Call with the folder of an index of five descriptors."""

    def opened(folder):
        pytest.importorskip("faiss")
        features = write_features(folder / "features", {"a.jpg": random_features(0, 5)})
        return call(build_index(features, folder / "index"))

    return opened


def add_other_features(index):
    other = ExtractorInfo("other", "sift", "orb", 6.0, 2048, "real", 32, "float16")
    images = {"a.jpg": random_features(0, 5)}
    Index(index).add(write_features(index.with_name("other"), images, extractor=other))


GREY = np.zeros((9, 9), np.uint8)
MESSAGES = [
    (lambda folder: open_benchmark("nonsense", "."), "benchmark: expected one of oxford, phototour|got 'nonsense'"),
    (
        lambda folder: open_benchmark("patches", ".", {"group": 2}),
        "unknown setting group. Known settings: groups, pairs",
    ),
    (lambda folder: open_benchmark("pose", folder), "no scenes with camera poses found|SCENE/sparse|MegaDepth-1500"),
    (
        lambda folder: open_candidate(colmap_rootsift()).check("frames", sift()),
        "expected a descriptor of given keypoints|Use the detector colmap.",
    ),
    (lambda folder: split_scenes(["a", "b"], "x"), "validation: unknown scene x|The scenes are a, b."),
    (lambda folder: doap.compare(write_photo(folder / "0.png", 0), folder / "out"), "photos: expected at least 6"),
    (lambda folder: write_report(folder, folder / "out"), "no *.json file in this folder|doap eval"),
    (lambda folder: read_recipe(folder / "none.toml"), "none.toml: no such recipe|recipes/"),
    (
        lambda folder: read_recipe(written(folder / "r.toml", b"[loss]\nname = 'none'")),
        "loss: name: expected one of|'none'",
    ),
    (lambda folder: train(Config(schedule={"steps": 1}), folder / "run"), "data.train: expected|--data"),
    (lambda folder: write_set(write_set(folder).parent), "set: already exists|choose another --out"),
    (open_set_without_meta, "set: not a patch set|meta.json|Build one with `doap data`"),
    (check_changed_patches, "patches.npy: expected SHA-256|Copy or build the set again"),
    (build_without_an_image, "missing 1 of 4 images, such as 3.png|Check the folder"),
    (build_with_a_ledger, "ledger.csv, line 3: expected 3 values"),
    (lambda folder: read_grey(written(folder / "cut.png", b"\x89PNG\r\n\x1a\n")), "cut.png|truncated|Copy it again"),
    (
        lambda folder: read_grey(written(folder / "a.heic", b"\x00\x00\x00\x18ftypheic")),
        "a.heic|pip install 'doap[heif]'",
    ),
    (lambda folder: as_detector("surf"), "detector: expected one of sift|surf"),
    (
        lambda folder: doap.extract_folder(folder / "none", folder / "out"),
        "none: expected a folder of images|does not exist",
    ),
    (lambda folder: FeatureSet(folder), "not a feature set|doap extract"),
    (lambda folder: Index(folder / "nothing"), "nothing: not an index|doap index build"),
    (with_index(lambda index: build_index(index.with_name("features"), index)), "index: already exists|doap index add"),
    (with_index(lambda index: Index(index).search(random_features(0, 1).descriptors, 9)), "1 to 5|got 9"),
    (with_index(add_other_features), "other: the features do not fit the index|detector is 'orb' instead of 'sift'"),
    (
        with_index(lambda index: MilvusIndex("http://127.0.0.1:1", "photos")),
        "127.0.0.1:1: no Milvus server answers|--uri",
    ),
    (lambda folder: doap.export_descriptor("sift", folder), "sift: no such file|*.safetensors|doap-128"),
    (
        lambda folder: doap.write_hloc(folder, folder, "rootsift", pairs="exhaustive"),
        "pairs and matches|both or neither",
    ),
    (lambda folder: resolve_pairs([("0.png", "9.png")], ["0.png"]), "'9.png'|paths inside the folder of images"),
    (lambda folder: import_extra("no_such_module", "colmap"), "no_such_module|pip install 'doap[colmap]'"),
    (
        lambda folder: doap.load("no-such-baseline"),
        "descriptor: expected one of|doap-128|rootsift|got 'no-such-baseline'|*.safetensors|module:function",
    ),
    (
        lambda folder: load_weights(folder, "absent.package:Network"),
        "absent.package:Network|loading weights imports no code|Import absent.package first|network=",
    ),
    (lambda folder: load_weights(folder, format_=7), "d.safetensors: unknown format 7|reads format 1|Update doap"),
    (
        match_different_descriptors,
        "features0 and features1|got features of two different ones|with the same descriptor",
    ),
    (
        lambda folder: doap.extract(GREY, torch.nn.Flatten()),
        "descriptor: expected a name such as 'doap-128'|got Flatten|doap.Descriptor|from_function",
    ),
]


@pytest.mark.parametrize(("call", "pieces"), MESSAGES, ids=[pieces for _, pieces in MESSAGES])
def test_a_message_names_the_subject_and_the_remedy(call, pieces, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(DoapError) as raised:
        call(tmp_path)
    assert [piece for piece in pieces.split("|") if piece not in str(raised.value)] == []
