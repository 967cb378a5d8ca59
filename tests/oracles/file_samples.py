"""A small valid sample of every file format that doap reads, and the function that reads it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import nn

import doap
from doap.collection.features import FeatureSet
from doap.collection.index import Index, build_index
from doap.data import SetWriter, UnitGroups
from doap.data.builders.from_images import read_ledger
from doap.data.builders.from_tracks import read_track_file, write_track_file
from doap.data.builders.tracks import read_tracks
from doap.data.readers.oxford import read_oxford
from doap.data.store import check_set, open_set
from doap.describer import from_function
from doap.descriptor import Descriptor
from doap.evaluation.report import write_report
from doap.evaluation.result import write_results
from doap.export.pairs import resolve_pairs
from doap.images import read_grey
from doap.training.checkpoint import RunProgress, load_state, save_state
from doap.training.config import read_recipe
from doap.training.log import Log
from doap.training.page import write_training_page
from oracles.photos import write_photo
from oracles.plane_scene import write_scene
from oracles.results import make_result


def blocks(patches: torch.Tensor) -> torch.Tensor:
    """Describe patches (B, 1, 32, 32) by the means of 16 blocks."""
    return nn.functional.normalize(nn.functional.avg_pool2d(patches, 8).flatten(1), dim=1)


DESCRIPTOR = from_function(blocks)
RECIPE = {"run": {"seed": 0}}
NAMES = ["a.png", "b.png", "sub/c.png"]


@dataclass(frozen=True)
class Sample:
    """A format.

    Attributes:
        write: Writes the sample into an empty folder.
        files: Patterns of the files of the sample to damage.
        read: Reads the sample.
    """

    write: Callable[[Path], Any]
    files: tuple[str, ...]
    read: Callable[[Path], Any]

    def choose(self, folder: Path, generator: random.Random) -> Path:
        """Choose one of the files of a sample that was written into a folder."""
        return generator.choice(sorted(folder.glob(generator.choice(self.files))))


def write_features(folder: Path) -> None:
    for seed in range(2):
        write_photo(folder / "photos" / f"{seed}.png", seed, 80, 100)
    settings: dict[str, Any] = {"max_keypoints": 20, "workers": 1}
    doap.extract_folder(folder / "photos", folder / "features", DESCRIPTOR, **settings)


def write_index(folder: Path) -> None:
    write_features(folder)
    build_index(folder / "features", folder / "index")


def read_index(folder: Path) -> Any:
    index = Index(folder / "index")
    index.search(np.zeros((1, 16), np.float32), 1)
    return index.info()


def write_hloc(folder: Path) -> Any:
    write_features(folder)
    settings: dict[str, Any] = {"max_keypoints": 20, "pairs": "exhaustive", "matches": folder / "m.h5"}
    return doap.write_hloc(folder / "photos", folder / "f.h5", DESCRIPTOR, **settings)


def write_set(folder: Path) -> None:
    with SetWriter(folder / "set", 8, {"extent": 1.5}, [{"file": "a"}]) as writer:
        ignore = np.array([[0, 1]])
        patches = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)
        writer.add("a", patches, UnitGroups(np.full(10, 2), "a", "a", ignore))
        writer.finish()


def read_set(folder: Path) -> Any:
    patch_set = open_set(folder / "set")
    groups = np.arange(len(patch_set))
    used = patch_set.extent, patch_set.ignored(groups), patch_set.gather(patch_set.members(groups))
    return used, patch_set.source_names, check_set(folder / "set")


def write_run(folder: Path) -> None:
    with closing(Log(folder / "log.jsonl")) as log:
        log.write("start", step=0, seconds=0.0, config={"run": {}}, baselines={"sift": {"map": 0.5, "fpr95": 0.1}})
        for step in range(1, 6):
            log.write("train", step=step, seconds=1.0 * step, loss=0.5, learning_rate=0.1, patches_per_second=9.0)
        log.write("validation", step=5, seconds=5.0, map=0.6, fpr95=0.2, best=True)
        log.write("regression_set", step=5, seconds=5.0, before=0.5, after=0.4)
        log.write("warning", step=5, seconds=5.0, text="text")


def checkpoint_parts() -> dict[str, Any]:
    network = nn.Linear(3, 2)
    return {"network": network, "optimiser": torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)}


def write_checkpoint(folder: Path) -> None:
    save_state(folder / "state.pt", RECIPE, checkpoint_parts(), RunProgress(5, 1.5, 0.5, 3))


def write_recipe(folder: Path) -> None:
    recipes = Path(__file__).parents[2] / "recipes"
    shutil.copy(recipes / "photos-128.toml", folder / "recipe.toml")


def write_ledger(folder: Path) -> None:
    rows = [f"{number}.jpg,castle,train,CC0,https://example.org/{number}" for number in range(8)]
    (folder / "ledger.csv").write_text("file,scene,split,licence,source\n" + "\n".join(rows) + "\n")


def write_weights(folder: Path) -> None:
    torch.manual_seed(0)
    Descriptor.build("fast", dim=8, extent=1.5).save(folder / "weights.safetensors")


def describe(path: Path) -> Any:
    describer = doap.load(path, device="cpu", precision="float32")
    size = describer.patch_size
    return describer.describe_patches(torch.rand(1, 1, size, size))


def write_result_files(folder: Path) -> None:
    (folder / "results").mkdir()
    write_results([make_result(), make_result("orb")], folder / "results" / "oxford.json")


def write_model(folder: Path) -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (12, 2))
    write_scene(folder, np.column_stack([points, np.zeros(12)]))


def write_text_model(folder: Path) -> None:
    import pycolmap

    write_model(folder)
    pycolmap.Reconstruction(folder / "sparse").write_text(folder / "sparse")
    for path in (folder / "sparse").glob("*.bin"):
        path.unlink()


def write_tracks(folder: Path) -> None:
    write_model(folder)
    write_track_file(folder / "sparse", folder / "images", folder / "a.parquet", database=folder / "database.db")


def write_images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    for extension in ("png", "jpg", "tif", "webp", "bmp", "ppm"):
        cv2.imwrite(str(folder / f"a.{extension}"), pixels)
    cv2.imwrite(str(folder / "deep.png"), pixels[:, :, 0].astype(np.uint16) * 9)


def read_images(folder: Path) -> Any:
    return [read_grey(path) for path in sorted(folder.iterdir())]


def write_pairs(folder: Path) -> None:
    (folder / "pairs.txt").write_text("# pairs\na.png b.png\n\nb.png sub/c.png\n")


def write_oxford(folder: Path) -> None:
    for number in range(1, 7):
        write_photo(folder / "oxford" / "graf" / f"img{number}.png", number, 40, 50)
        if number > 1:
            np.savetxt(folder / "oxford" / "graf" / f"H1to{number}p", np.eye(3) + 0.01)


MODEL = ("cameras", "images", "points3D", "rigs", "frames")
IMAGES = ("a.png", "a.jpg", "a.tif", "a.webp", "a.bmp", "a.ppm", "deep.png")
SAMPLES: dict[str, Sample] = {
    "recipe": Sample(write_recipe, ("recipe.toml",), lambda folder: read_recipe(folder / "recipe.toml")),
    "ledger": Sample(write_ledger, ("ledger.csv",), lambda folder: read_ledger(folder / "ledger.csv", "train")),
    "weights": Sample(write_weights, ("weights.safetensors",), lambda folder: describe(folder / "weights.safetensors")),
    "checkpoint": Sample(
        write_checkpoint, ("state.pt",), lambda folder: load_state(folder / "state.pt", RECIPE, checkpoint_parts())
    ),
    "result": Sample(
        write_result_files,
        ("results/oxford.json",),
        lambda folder: write_report(folder / "results", folder / "report"),
    ),
    "log": Sample(write_run, ("log.jsonl",), write_training_page),
    "features": Sample(
        write_features,
        ("features/_meta.json", "features/part-*.parquet"),
        lambda folder: list(FeatureSet(folder / "features").stream()),
    ),
    "index": Sample(write_index, ("index/meta.json",), read_index),
    "set": Sample(write_set, ("set/meta.json", "set/groups.parquet", "set/patches.npy"), read_set),
    "colmap": Sample(
        write_model,
        tuple(f"sparse/{name}.bin" for name in MODEL),
        lambda folder: read_tracks(folder / "sparse"),
    ),
    "colmap text": Sample(
        write_text_model,
        tuple(f"sparse/{name}.txt" for name in MODEL),
        lambda folder: read_tracks(folder / "sparse"),
    ),
    "colmap database": Sample(
        write_model, ("database.db",), lambda folder: read_tracks(folder / "sparse", folder / "database.db")
    ),
    "tracks": Sample(write_tracks, ("a.parquet",), lambda folder: read_track_file(folder / "a.parquet")),
    "image": Sample(write_images, IMAGES, read_images),
    "pairs": Sample(write_pairs, ("pairs.txt",), lambda folder: resolve_pairs(folder / "pairs.txt", NAMES)),
    "homographies": Sample(
        write_oxford, ("oxford/graf/H1to2p", "oxford/graf/H1to3p"), lambda folder: read_oxford(folder / "oxford")
    ),
}
