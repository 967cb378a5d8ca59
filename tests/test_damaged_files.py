"""Damaged features, indexes, patch sets, hloc files and logs: one clear error, and never a path outside the folder."""

import contextlib
import json
import random

import numpy as np
import pytest
import torch

import doap
from doap.data import SetWriter, UnitGroups
from doap.data.store import check_set, open_set
from doap.describer import from_function
from doap.errors import DataError, DoapError
from doap.scale.features import FeatureSet
from doap.scale.index import Index, build_index
from doap.training.log import Log
from doap.training.page import write_training_page
from oracles.photos import write_photo

pytest.importorskip("faiss")
pytest.importorskip("h5py")


def blocks(patches):
    return torch.nn.functional.normalize(torch.nn.functional.avg_pool2d(patches, 8).flatten(1), dim=1)


DESCRIPTOR = from_function(blocks)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """One valid sample of each format."""
    folder = tmp_path_factory.mktemp("samples")
    for seed in range(2):
        write_photo(folder / "photos" / f"{seed}.png", seed, 80, 100)
    settings = {"max_keypoints": 20, "workers": 1}
    doap.extract_folder(folder / "photos", folder / "features", DESCRIPTOR, **settings, stored="float32")
    build_index(folder / "features", folder / "index")
    write_hloc(folder, folder)
    with SetWriter(folder / "set", 8, {"extent": 1.5}, [{"file": "a"}]) as writer:
        position, ignore = np.zeros((10, 3), np.float32), np.array([[0, 1]])
        patches = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)
        writer.add("a", patches, UnitGroups(np.full(10, 2), "a", position, "a", ignore))
        writer.finish()
    (folder / "run").mkdir()
    with Log(folder / "run" / "log.jsonl") as log:
        log.write("start", step=0, seconds=0.0, config={"run": {}}, baselines={"sift": {"map": 0.5, "fpr95": 0.1}})
        for step in range(1, 6):
            log.write("train", step=step, seconds=1.0 * step, loss=0.5, learning_rate=0.1, patches_per_second=9.0)
        log.write("validation", step=5, seconds=5.0, map=0.6, fpr95=0.2, best=True)
        log.write("regression_set", step=5, seconds=5.0, before=0.5, after=0.4)
        log.write("warning", step=5, seconds=5.0, text="text")
    return folder


def write_hloc(samples, out):
    doap.write_hloc(
        samples / "photos",
        out / "f.h5",
        DESCRIPTOR,
        max_keypoints=20,
        pairs="exhaustive",
        matches=out / "m.h5",
    )


def read_features(samples):
    return list(FeatureSet(samples / "features").stream())


def read_index(samples):
    index = Index(samples / "index")
    index.search(np.zeros((1, 16), np.float32), 1)
    return index.info(), index.frames(0)


def read_set(samples):
    patch_set = open_set(samples / "set")
    return patch_set.extent, patch_set.ignored(np.arange(len(patch_set))), check_set(samples / "set")


def read_run(samples):
    return write_training_page(samples / "run", samples / "report.html")


READERS = {
    "features/meta.json": read_features,
    "features/part-000001.parquet": read_features,
    "index/meta.json": read_index,
    "index/images-000001.parquet": read_index,
    "index/frames-000001.npy": read_index,
    "set/meta.json": read_set,
    "set/groups.parquet": read_set,
    "set/patches.npy": read_set,
    "run/log.jsonl": read_run,
    "f.h5": lambda samples: write_hloc(samples, samples),
    "m.h5": lambda samples: write_hloc(samples, samples),
}


@pytest.fixture
def restored(samples, request):
    """The samples; the file of the test is restored afterwards."""
    path = samples / request.node.callspec.params["name"]
    content = path.read_bytes()
    yield samples
    path.write_bytes(content)


@pytest.mark.parametrize("name", READERS)
def test_changed_bytes_are_accepted_or_refused_with_a_message(restored, name):
    generator, content = random.Random(0), (restored / name).read_bytes()
    for number in range(12 if name.endswith("h5") else 60):
        damaged = bytearray(content)
        for _ in range(generator.choice([1, 3, 16])):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        (restored / name).write_bytes(damaged if number % 3 else content[: generator.randrange(len(content))])
        with contextlib.suppress(DoapError):
            READERS[name](restored)


VALUES = [None, [], {}, -1, 1e308, "x", "", float("nan"), 10**30, [1], {"a": 1}, "../../secret"]


@pytest.mark.parametrize("name", ["features/meta.json", "index/meta.json", "set/meta.json", "run/log.jsonl"])
def test_wrong_values_are_accepted_or_refused_with_a_message(restored, name):
    generator, lines = random.Random(1), (restored / name).read_text()
    separate = lines.splitlines() if name.endswith("jsonl") else [lines]
    for _ in range(150):
        chosen = generator.randrange(len(separate))
        root = json.loads(separate[chosen])
        inner = root
        while True:
            key = generator.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
            if not isinstance(inner[key], dict | list) or not inner[key] or generator.random() < 0.3:
                break
            inner = inner[key]
        inner[key] = generator.choice(VALUES)
        changed = [json.dumps(root) if number == chosen else line for number, line in enumerate(separate)]
        (restored / name).write_text("\n".join(changed) + "\n")
        with contextlib.suppress(DoapError):
            READERS[name](restored)


@pytest.mark.parametrize("name", ["index/meta.json"])
def test_an_index_does_not_refer_to_files_of_other_folders(restored, name):
    meta = json.loads((restored / name).read_text())
    (restored / name).write_text(json.dumps(meta | {"images": "../features/part-000001.parquet"}))
    with pytest.raises(DataError, match=r"meta.json: not an index: images"):
        Index(restored / "index")
