"""Valid arguments of every command, with small generated inputs. `benchmarks/wrong_arguments.py` replaces them."""

from __future__ import annotations

import csv
from pathlib import Path

import cv2

import doap
from data.readers import formats
from doap.evaluation.result import write_results
from oracles import corner_scene
from oracles.photos import write_photo
from oracles.results import make_result
from oracles.writing_commands import COMMANDS, IMAGES, write_inputs


def write_all_inputs(folder: Path) -> None:
    """Write the inputs of all commands."""
    write_inputs(folder)
    for number in range(IMAGES):
        write_photo(folder / "masks" / f"{number}.png.png", number, 120, 160)
    doap.extract_folder(folder / "images", folder / "binary", "doap-256bit", workers=1, max_keypoints=20, device="cpu")
    _write_poses(folder)
    formats.write_hpatches(folder / "hpatches-release", {"v_wall": formats.random_patches(3, 16, 65, 65)})
    rows = [(f"{number}.png", "yard", "train") for number in range(IMAGES)]
    formats.write_lines(folder / "ledger.csv", [("file", "scene", "split"), *rows], ",")
    (folder / "results").mkdir()
    write_results([make_result()], folder / "results" / "sift-oxford.json")


def _write_poses(folder: Path) -> None:
    """Write photos of a corner and the CSV file of their poses."""
    (folder / "posed" / "corner").mkdir(parents=True)
    with (folder / "poses.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["file", "rotation_matrix", "translation_vector"])
        for number, angle in enumerate(corner_scene.ANGLES[:3]):
            matrix = corner_scene.pose(angle)
            cv2.imwrite(str(folder / "posed" / "corner" / f"{number}.png"), corner_scene.render(matrix))
            numbers = (";".join(map(str, part.ravel())) for part in (matrix[:, :3], matrix[:, 3]))
            writer.writerow([f"corner/{number}.png", *numbers])


_FAST = "--descriptor rootsift --detector sift --max-keypoints 30 --device cpu"
_MORE = {
    "extract": "--masks {inputs}/masks --device cpu",
    "colmap": "--masks {inputs}/masks --pairs {inputs}/pairs.txt --device cpu",
    "hloc": "--masks {inputs}/masks --device cpu",
    "opensfm": "--masks {inputs}/masks --device cpu",
    "index build": "--max-keypoints 20",
    "data from-images": "--ledger {inputs}/ledger.csv --split train",
    "data from-colmap": "--database {inputs}/plane/database.db",
    "train": "--validation {inputs}/other --regression-set {inputs}/other --init {inputs}/fast.safetensors",
    "export": "--to onnx",
}
_OTHERS = {
    "match": f"match {{inputs}}/images/0.png {{inputs}}/images/1.png --out {{out}}/matches.png {_FAST}",
    "compare": f"compare {{inputs}}/images --out {{out}}/report --baselines sift --no-reconstruction {_FAST}",
    "localize": "localize {inputs}/plane/images/2.png --model {inputs}/plane/sparse --images {inputs}/plane/images "
    f"--cache {{out}}/cache --camera 1.png {_FAST}",
    "index search": "index search {inputs}/images/0.png --index {inputs}/index --features {inputs}/features "
    "--descriptor rootsift --out {out}/found.png --images {inputs}/images --device cpu",
    "index export": "index export {inputs}/features --out {out}/rows",
    "index vocabulary": "index vocabulary {inputs}/binary --out {out}/words.txt --branching 3 --levels 2",
    "index info": "index info {inputs}/index",
    "index verify": "index verify {inputs}/index --features {inputs}/features",
    "pairs": "pairs {inputs}/features --out {out}/pairs.txt --index {inputs}/index",
    "data from-public": "data from-public {inputs}/hpatches-release --out {out}/set",
    "data from-poses": "data from-poses {inputs}/poses.csv {inputs}/posed --out {out}/scenes --scene corner "
    "--descriptor rootsift --max-keypoints 200",
    "data preview": "data preview {inputs}/set --out {out}/preview.png --groups 4",
    "data split": "data split {inputs}/set a --out {out}/set",
    "eval": "eval rootsift patches {inputs}/set --out {out}/results --set groups=20 --set pairs=200 --device cpu",
    "report": "report {inputs}/results --out {out}/report",
    "doctor": "doctor",
}

WORDS = {name: f"{COMMANDS[name].words} {_MORE.get(name, '')}" for name in COMMANDS if " with " not in name} | _OTHERS
"""Arguments of every command. `{inputs}`, `{images}` and `{out}` are replaced by folders."""


def prepare(command: str, inputs: Path, out: Path) -> None:
    """Copy what a command changes from the inputs to the folder of outputs."""
    if command in COMMANDS:
        COMMANDS[command].prepare(inputs, out)


def arguments(command: str, inputs: Path, out: Path) -> list[str]:
    """Return the words of a command line, with the words that select the command."""
    images = inputs / ((COMMANDS[command].images if command in COMMANDS else None) or "images")
    return [word.format(inputs=inputs, images=images, out=out) for word in WORDS[command].split()]
