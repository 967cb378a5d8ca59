"""Write small datasets in the formats of the published ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat

Patches = NDArray[np.uint8]
STRIPS = ["ref", "e1", "e2", "e3", "e4", "e5", "h1", "h2", "h3", "h4", "h5", "t1", "t2", "t3", "t4", "t5"]


def random_patches(*shape: int, seed: int = 0) -> Patches:
    """Return noise, in which a rotated, shifted or swapped patch is detected."""
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_image(path: Path, image: Patches) -> None:
    """Write an image in the format of its extension; a .ppm is in colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = cv2.merge([image] * 3) if path.suffix == ".ppm" else image
    assert cv2.imwrite(str(path), image)


def write_lines(path: Path, rows: Iterable[Iterable[object]], separator: str = " ") -> None:
    """Write one row of values per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))


def write_phototour(
    root: Path, patches: Patches, points: list[int], images: list[int], pairs: list[tuple[int, int]]
) -> Path:
    """Write sheets of 16×16 tiles, the last padded with black, info.txt, interest.txt and a pair list."""
    for start in range(0, len(patches), 256):
        sheet = np.zeros((1024, 1024), np.uint8)
        for tile, patch in enumerate(patches[start : start + 256]):
            y, x = 64 * (tile // 16), 64 * (tile % 16)
            sheet[y : y + 64, x : x + 64] = patch
        write_image(root / f"patches{start // 256:04d}.bmp", sheet)
    write_lines(root / "info.txt", ((point, 0) for point in points))
    write_lines(root / "interest.txt", ((image, 12.5, 8.25, 0.1, 2.0) for image in images))
    lines = ((a, points[a], 0, b, points[b], 0, 0) for a, b in pairs)
    write_lines(root / "m50_100000_100000_0.txt", lines)
    return root


def write_hpatches(root: Path, sequences: Mapping[str, Patches]) -> Path:
    """Write strips of groups (n, 16, 65, 65) in the order of `STRIPS`."""
    for name, groups in sequences.items():
        for number, strip in enumerate(STRIPS):
            write_image(root / name / f"{strip}.png", np.concatenate(list(groups[:, number])))
    return root


def write_tasks(root: Path, split: str = "a", test: tuple[str, ...] = ("i_dome", "v_wall")) -> Path:
    """Write splits.json and the five files of a split with two sequences."""
    splits = {
        split: {"name": split, "train": ["v_boat"], "test": list(test)},
        "full": {"name": "full", "test": list(test)},
    }
    (root / "splits").mkdir(parents=True)
    (root / "splits" / "splits.json").write_text(json.dumps(splits))
    one, two = test
    write_csv(root / f"retr_queries_split-{split}.csv", "s,idx", [(two, 3), (one, 0), (two, 1)])
    write_csv(root / f"retr_distractors_split-{split}.csv", "s,idx", [(one, 7), (two, 2)])
    header = "s1,t1,idx1,s2,t2,idx2"
    write_csv(root / f"verif_pos_split-{split}.csv", header, [(two, 4, 251, two, 3, 251), (one, 0, 5, one, 3, 5)])
    write_csv(root / f"verif_neg_intra_split-{split}.csv", header, [(two, 4, 251, two, 3, 12), (one, 0, 5, one, 3, 6)])
    write_csv(root / f"verif_neg_inter_split-{split}.csv", header, [(two, 4, 251, one, 3, 204), (one, 0, 5, two, 3, 9)])
    return root


def write_csv(path: Path, header: str, rows: Iterable[Iterable[object]]) -> None:
    """Write a header and rows separated by commas."""
    write_lines(path, [header.split(","), *rows], separator=",")


def write_romepatches(root: Path, split: str, patches: Patches, labels: list[int], queries: int) -> Path:
    """Write patches (N, 3, S, S), queries first, and the labels of queries and database."""
    root.mkdir(parents=True, exist_ok=True)
    stem = f"patch_retrieval_Rome_{split}"
    savemat(root / f"{stem}.mat", {"patches": patches}, do_compression=True)
    parts = {"labels_gt": np.array(labels[:queries]), "labels": np.array(labels[queries:])}
    savemat(root / f"{stem}_labels.mat", parts, oned_as="column")
    return root


def write_oxford(folder: Path, homographies: NDArray[np.float64], extension: str = "ppm", xml: bool = False) -> Path:
    """Write img1…img6 and H1to2p…H1to6p, as text or OpenCV's XML."""
    for number in range(1, 7):
        write_image(folder / f"img{number}.{extension}", random_patches(8, 10, seed=number))
        if number > 1 and xml:
            storage = cv2.FileStorage(str(folder / f"H1to{number}p.xml"), cv2.FILE_STORAGE_WRITE)
            storage.write(f"H1{number}", homographies[number - 1])
            storage.release()
        elif number > 1:
            write_lines(folder / f"H1to{number}p", homographies[number - 1].tolist(), separator="   ")
    return folder


def write_hpatches_images(folder: Path, homographies: NDArray[np.float64]) -> Path:
    """Write 1.ppm…6.ppm and H_1_2…H_1_6."""
    for number in range(1, 7):
        write_image(folder / f"{number}.ppm", random_patches(8, 10, seed=number))
        if number > 1:
            write_lines(folder / f"H_1_{number}", homographies[number - 1].tolist())
    return folder
