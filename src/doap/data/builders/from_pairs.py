"""Build a patch set from registered pairs of images of two modalities, such as infrared and visible light."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap._support.random_streams import stream
from doap.data.builders.cut import Cut, cut_unchanged
from doap.data.builders.nearby import near_pairs
from doap.data.writer import SetWriter, UnitGroups
from doap.detectors import sift
from doap.images import Pyramid, centres, extract_patches, inside, list_images, read_grey, resize_frames
from doap.types import Progress, no_progress

Image = NDArray[np.uint8]
Frames = NDArray[np.float32]


def build_from_pairs(
    folder0: str | Path,
    folder1: str | Path,
    out: str | Path,
    *,
    patch_size: int = 32,
    extent: float = 1.0,
    keypoints: int = 500,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Path:
    """Build a patch set from pairs of images that show the same scene pixel by pixel.

    Keypoints are detected in both images of a pair. The patches of a keypoint are cut at the same position in both, so
    each group has one patch per modality. Resumable: call it again to continue an interrupted build.

        build_from_pairs("infrared", "visible", "cross.patches")

    Args:
        folder0: Images of one modality. A subfolder is a scene; images directly in the folder form one scene.
        folder1: Images of the other modality: the same names up to the extension, or the same number of images, which
            are then paired in the order of their names.
        out: Folder of the new set. It must not exist.
        patch_size: Side S of the patches in pixels.
        extent: Patch side relative to SIFT's support of 12 σ: 1.5 gives a patch side of 18 σ.
        keypoints: Maximum number of keypoints per image.
        seed: Random seed of the selection of keypoints.
        progress: Called after each pair.
    """
    folder0, folder1 = Path(folder0), Path(folder1)
    pairs = pair_images(folder0, folder1)
    settings = {"patch_size": patch_size, "extent": extent, "keypoints": keypoints, "seed": seed}
    builder = {"command": "from-pairs", "pairs": [(pair.name0, pair.name1) for pair in pairs], **settings}
    # A name may occur in both folders.
    both = {pair: {f"A/{pair.name0}": folder0 / pair.name0, f"B/{pair.name1}": folder1 / pair.name1} for pair in pairs}
    with SetWriter(out, patch_size, builder, []) as writer:
        writer.check_inputs({name: path for paths in both.values() for name, path in paths.items()})
        numbers = {pair.name0: number for number, pair in enumerate(pairs)}
        for name in writer.remaining(list(numbers)):
            pair, random = pairs[numbers[name]], stream(seed, "registered pairs", numbers[name])
            cut = partial(_cut_pair, pair, folder0, folder1, patch_size, extent, keypoints, random)
            writer.add(name, *cut_unchanged(both[pair], cut))
            progress(writer.done, len(pairs), name)
        return writer.finish()


@dataclass(frozen=True)
class NamedPair:
    """Names of two registered images, relative to their folders, and of their scene."""

    name0: str
    name1: str
    scene: str


def pair_images(folder0: Path, folder1: Path) -> list[NamedPair]:
    """Pair the images of two folders by name, without the extension; by order if no name occurs in both."""
    names0, names1 = (_names(folder) for folder in (folder0, folder1))
    stems0, stems1 = ({name.rpartition(".")[0]: name for name in names} for names in (names0, names1))
    for folder, names, stems in ((folder0, names0, stems0), (folder1, names1, stems1)):
        if len(stems) < len(names):
            raise DataError(f"{folder}: expected one image per name, got several that differ only in the extension.")
    if stems0.keys() & stems1.keys():
        if lonely := sorted(stems0.keys() ^ stems1.keys()):
            owner, other = (folder0, folder1) if lonely[0] in stems0 else (folder1, folder0)
            raise DataError(
                f"{owner}: {len(lonely)} images have no partner of the same name, such as {lonely[0]}, which {other} "
                "lacks. Remove or rename them."
            )
        matched = [(stems0[stem], stems1[stem]) for stem in sorted(stems0)]
    elif len(names0) == len(names1):
        matched = list(zip(names0, names1, strict=True))
    else:
        raise DataError(
            f"{folder0} and {folder1}: expected the same names, or equally many images to pair in order, got "
            f"{len(names0)} and {len(names1)} images without a common name."
        )
    own = folder0.resolve().name
    return [NamedPair(name0, name1, name0.partition("/")[0] if "/" in name0 else own) for name0, name1 in matched]


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in list_images(folder)]


def _cut_pair(
    pair: NamedPair,
    folder0: Path,
    folder1: Path,
    patch_size: int,
    extent: float,
    keypoints: int,
    random: np.random.Generator,
) -> Cut:
    """Return the patches (2·G, S, S) of G keypoints, two by two, and their groups."""
    images = read_grey(folder0 / pair.name0), read_grey(folder1 / pair.name1)
    if images[0].shape != images[1].shape:
        sizes = [f"{image.shape[1]} × {image.shape[0]}" for image in images]
        raise DataError(
            f"{folder1 / pair.name1}: expected the size of {folder0 / pair.name0}, {sizes[0]}, got {sizes[1]}. "
            "Register the images first, so that both show the same point at the same pixel."
        )
    frames = np.concatenate([_keypoints(image, keypoints, random) for image in images])
    cut = [extract_patches(Pyramid(image), resize_frames(frames, extent), patch_size) for image in images]
    patches = np.stack(cut, axis=1).reshape(-1, patch_size, patch_size)
    position = np.pad(centres(frames), ((0, 0), (0, 1)))
    groups = UnitGroups(
        np.full(len(frames), len(images)), pair.scene, position, pair.name0, near_pairs(centres(frames))
    )
    return patches, groups


def _keypoints(image: Image, count: int, random: np.random.Generator) -> Frames:
    """Return the frames (N, 2, 3) of random keypoints of an image whose frames are inside it."""
    frames, _ = sift().detect(image)
    frames = frames[inside(frames, *image.shape)]
    return frames[np.sort(random.permutation(len(frames))[:count])]
