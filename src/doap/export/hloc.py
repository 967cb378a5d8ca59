"""Features and matches in the HDF5 files of hloc (Hierarchical-Localization), read by it and by what is built on it.

Features: a group for each image, named by its path inside the folder of images, with `keypoints` (N, 2) as (x, y),
`descriptors` (D, N), `scores` (N,), larger is stronger, and `image_size` (width, height). Matches: a group `A/B` for
the images A and B, with each `/` of their names turned into `-`, and in it `matches0` (N0,), the place in image B or
−1, and `matching_scores0` (N0,), larger is better. Checked against hloc's own code (`extract_features.py`,
`match_features.py`, `triangulation.py`, `utils/io.py`: list_h5_names, get_keypoints, find_pair, get_matches,
`utils/parsers.py`: names_to_pair, `matchers/nearest_neighbor.py`):

- Pixel centres are at integers, as in doap: hloc adds the half that COLMAP wants when it imports them.
- Images are read as they are stored, without their EXIF orientation, since hloc and COLMAP do so.
- hloc writes `matches0` with 16 bits, where more than 32,767 keypoints overflow, and 16-bit floats; it reads any. Here
  all have 32 bits.
- Bits stay bytes, `descriptors` (D/8, N) uint8. hloc's own matchers take them for numbers: match them here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap import __version__
from doap.checks import check_shape
from doap.describer import Describer
from doap.detectors import Detector, sift
from doap.errors import ArgumentError, DataError, import_extra
from doap.images import list_images, read_grey
from doap.matching import match_descriptors
from doap.pipeline import extract
from doap.types import Features, Progress, no_progress

Group = dict[str, NDArray[Any]]

_SETTINGS = "doap"
# Descriptors of this many images are kept in memory while pairs are matched: about 1 MB each with 2,048 keypoints.
_IN_MEMORY = 64


@dataclass(frozen=True)
class Written:
    """What a run did.

    Attributes:
        out: the file.
        written: groups that this run added.
        kept: groups that were there before.
        skipped: the images that could not be read, and why.
    """

    out: Path
    written: int
    kept: int
    skipped: dict[str, str]


def extract_features(
    images: str | Path,
    out: str | Path,
    descriptor: Describer,
    *,
    descriptor_name: str,
    detector: Detector | None = None,
    max_keypoints: int = 2048,
    progress: Progress = no_progress,
) -> Written:
    """Extract the features of a folder of images into one file. Killed? The same call resumes.

    Images that are in the file already are skipped; so are those that cannot be read, and their reasons are returned.

    Args:
        images: the folder.
        out: the HDF5 file; it appears when all is done. The work is in `out` + `.unfinished`.
        descriptor, detector, most: as for `doap.extract`.
        descriptor_name: tells descriptors apart; a file is only ever filled by one, with one set of settings.
        progress: called before each image, and after the last, with how many are done, how many there are, and its name.
    """
    images, detector = Path(images), detector or sift()
    names = [path.relative_to(images).as_posix() for path in list_images(images)]
    settings = {
        "descriptor": descriptor_name,
        "detector": detector.name,
        "max_keypoints": max_keypoints,
        "version": __version__,
    }
    settings |= {"magnification": detector.magnification, "patch_size": descriptor.patch_size}
    skipped: dict[str, str] = {}

    def make(name: str) -> Group | None:
        try:
            grey = read_grey(images / name)
        except DataError as error:
            skipped[name] = str(error)
            return None
        return _feature_group(extract(grey, descriptor, detector=detector, max_keypoints=max_keypoints))

    written, kept = _fill(Path(out), settings, names, make, progress)
    if len(skipped) == len(names):
        first = next(iter(skipped.values()))
        raise DataError(
            f"{images}: expected an image that can be read, got {len(skipped)} that cannot; the first: {first}"
        )
    return Written(Path(out), written, kept, skipped)


def match_features(
    features: str | Path,
    pairs: Sequence[tuple[str, str]],
    out: str | Path,
    *,
    ratio: float | None = None,
    progress: Progress = no_progress,
) -> Written:
    """Match pairs of images, mutual nearest neighbours, into one file. Killed? The same call resumes.

    Args:
        features: a file that `extract_features` made.
        pairs: names of two images each; pairs with an image that is not in the file are left out.
        out: the HDF5 file; it appears when all is done.
        ratio: as for `doap.match`.
        progress: as for `extract_features`.
    """
    h5py, features = _h5py(), Path(features)
    if not _opens(features):
        raise DataError(f"{features}: expected an HDF5 file of features, got none that opens; run `doap extract` first")
    with h5py.File(features, "r") as file:
        settings = {"features": file.attrs.get(_SETTINGS, ""), "ratio": ratio, "version": __version__}
        pairs = [pair for pair in pairs if pair[0] in file and pair[1] in file]
    images = {name for pair in pairs for name in pair}
    if len({_flat(name) for name in images}) < len(images):
        raise DataError(
            f"{features}: expected names that differ when '/' is '-', as in hloc's files, got some that don't"
        )
    named = {pair_name(*pair): pair for pair in pairs}

    @lru_cache(_IN_MEMORY)
    def descriptors(name: str) -> Tensor:
        with h5py.File(features, "r") as file:
            return torch.from_numpy(np.ascontiguousarray(file[name]["descriptors"][()].T))

    def make(name: str) -> Group:
        of0, of1 = (descriptors(image) for image in named[name])
        matches, distances = match_descriptors(of0, of1, ratio=ratio)
        # As hloc's nearest neighbours have it: half of 1 + cos. For bits it is the share of those that are equal.
        scores = 1 - (distances / (8 * of0.shape[1]) if of0.dtype == torch.uint8 else distances.square() / 4)
        return _match_group(matches.numpy(), scores.numpy(), len(of0))

    return Written(Path(out), *_fill(Path(out), settings, list(named), make, progress), skipped={})


def write_features(path: str | Path, name: str, features: Features) -> None:
    """Add the features of an image, under its name, to a file; both may be there already."""
    _write(Path(path), name, _feature_group(features))


def write_matches(
    path: str | Path, name0: str, name1: str, matches: NDArray[np.integer[Any]], scores: NDArray[Any], count: int
) -> None:
    """Add the matches of two images to a file; both may be there already.

    Args:
        path: the file.
        name0, name1: of the images.
        matches: (M, 2) indices into the keypoints of both, each of image 0 at most once.
        scores: (M,), larger is better.
        count: N0, keypoints of image 0.
    """
    _write(Path(path), pair_name(name0, name1), _match_group(matches, scores, count))


def pair_name(name0: str, name1: str) -> str:
    """The group of two images."""
    return f"{_flat(name0)}/{_flat(name1)}"


def _flat(name: str) -> str:
    return name.replace("/", "-")


def _feature_group(features: Features) -> Group:
    height, width = features.image_size
    return {
        "keypoints": features.keypoints,
        "descriptors": features.descriptors.cpu().numpy().T,
        "scores": features.responses,
        "image_size": np.array([width, height]),
    }


def _match_group(matches: NDArray[np.integer[Any]], scores: NDArray[Any], count: int) -> Group:
    number = check_shape(matches, "M 2", name="matches")["M"]
    check_shape(scores, str(number), name="scores")
    first = matches[:, 0]
    if number and (first.min() < 0 or first.max() >= count or len(np.unique(first)) < number):
        raise ArgumentError(
            f"matches: expected each keypoint of image 0 once at most, from 0 to {count - 1}, got others"
        )
    matches0, scores0 = np.full(count, -1, np.int32), np.zeros(count, np.float32)
    matches0[first], scores0[first] = matches[:, 1], scores
    return {"matches0": matches0, "matching_scores0": scores0}


def _fill(
    out: Path, settings: Mapping[str, Any], names: list[str], make: Callable[[str], Group | None], progress: Progress
) -> tuple[int, int]:
    """Add the groups that are missing, whole or not at all; return how many were added and how many were there.

    HDF5 does not survive being killed while a file is open for writing. So the work is done on another file, opened for
    each group and closed again. What a killed run left is resumed if it opens, and is started anew if it does not.
    """
    unfinished = out.with_name(out.name + ".unfinished")
    source = unfinished if _opens(unfinished) else out if out.exists() else None
    there = _names_in(source, settings, names) if source else set()
    missing = [name for name in names if name not in there]
    written = 0
    for number, name in enumerate(missing):
        progress(len(names) - len(missing) + number, len(names), name)
        group = make(name)
        if group is None:
            continue
        if source != unfinished:
            _begin(unfinished, source, settings)
            source = unfinished
        _write(unfinished, name, group)
        written += 1
    progress(len(names), len(names), "")
    if source == unfinished:
        unfinished.replace(out)
    return written, len(there)


def _begin(unfinished: Path, source: Path | None, settings: Mapping[str, Any]) -> None:
    """The file to work on: with the groups of a finished one, or new."""
    if source:
        shutil.copyfile(source, unfinished)
        return
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    with _h5py().File(unfinished, "w", libver="latest") as file:
        file.attrs[_SETTINGS] = json.dumps(settings, sort_keys=True)


def _names_in(path: Path, settings: Mapping[str, Any], names: list[str]) -> set[str]:
    """Those of the names that the file has; it must be one of ours, made with these settings."""
    if not _opens(path):
        raise DataError(
            f"{path}: expected an HDF5 file, got another or a damaged one; delete it or choose another name"
        )
    with _h5py().File(path, "r") as file:
        made = json.loads(file.attrs.get(_SETTINGS, "{}"))
        for key, wanted in settings.items():
            if (got := made.get(key)) != wanted:
                raise DataError(f"{path}: expected {key} {wanted!r}, got a file with {got!r}; choose another name")
        return {name for name in names if name in file}


def _opens(path: Path) -> bool:
    """Whether it is an HDF5 file that was closed as it should be: one that was not says so in its first block."""
    h5py = _h5py()
    try:
        h5py.File(path, "r").close()
    except OSError:
        return False
    return True


def _write(path: Path, name: str, group: Group) -> None:
    """Add a group, in place of one of that name. It gets its name last, so that one that is found is whole."""
    # The newest layout of HDF5, as hloc has it: the only one that tells a file that was not closed.
    with _h5py().File(path, "a", libver="latest") as file:
        made = file.create_group(None)
        for key, values in group.items():
            made.create_dataset(key, data=np.ascontiguousarray(values))
        if name in file:
            del file[name]
        file[name] = made


def _h5py() -> Any:
    return import_extra("h5py", "hloc")
