"""Write features and matches as the HDF5 files of hloc (Hierarchical-Localization).

    NAME.features/       feature set of the images; later runs extract only what is new
    NAME                 hloc's features file, written from the feature set

Features: one group per image, named by its path inside the folder of images, with `keypoints` (N, 2) as (x, y),
`descriptors` (D, N), `scores` (N,), larger is stronger, and `image_size` (width, height). Matches: one group `A/B` for
images A and B, with every `/` in their names replaced by `-`. It holds `matches0` (N0,), the index in image B or −1,
and `matching_scores0` (N0,), larger is better. The layout follows hloc's code (`extract_features.py`,
`match_features.py`, `triangulation.py`, `utils/io.py`: list_h5_names, get_keypoints, find_pair, get_matches,
`utils/parsers.py`: names_to_pair, `matchers/nearest_neighbor.py`):

- Pixel centres are at integers, as in doap. hloc adds the half pixel for COLMAP itself.
- Images are read as stored, without EXIF orientation, as in hloc and COLMAP.
- hloc writes `matches0` with 16 bits, which overflow at 32,768 keypoints, and 16-bit floats. It reads any type. doap
  writes 32 bits.
- Binary descriptors stay packed: `descriptors` (D/8, N) uint8. hloc's own matchers would interpret them as numbers, so
  match them with doap.

doap only writes HDF5. A line in the user block, which every HDF5 file may begin with, tells what a file was written
from: a run leaves an up-to-date file alone, and writes another one as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.device import resolve_device
from doap._support.errors import ArgumentError, DataError, import_extra
from doap._support.files import OutputLock, atomic_write, beside, make_folder
from doap.collection.extraction import ExtractionSummary, use_features
from doap.collection.extractor import open_extractor
from doap.collection.features import FeatureSet
from doap.collection.image_folder import ImageFolder
from doap.detectors import Detector
from doap.export.pairs import NamePair, Pairs, resolve_pairs
from doap.extractor import MAX_KEYPOINTS, DescriptorSource
from doap.matching import match_descriptors
from doap.types import Features, Progress, no_progress

Arrays = dict[str, NDArray[Any]]
FORMAT = 1
# The smallest user block of HDF5.
_LINE_BYTES = 512
# Images kept in memory while pairs are matched: about 1 MB each with 2,048 keypoints and 128 dimensions.
_CACHED_IMAGES = 64


@dataclass(frozen=True)
class HlocSummary(ExtractionSummary):
    """Result of `write_hloc`: that of the extraction, with the features file as `out`.

    Attributes:
        matches: The matches file, if one was written.
        pairs: Number of image pairs in it.
    """

    matches: Path | None = None
    pairs: int = 0


def write_hloc(
    images: str | Path,
    out: str | Path,
    descriptor: DescriptorSource = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = MAX_KEYPOINTS,
    masks: str | Path | None = None,
    tile: int | None = None,
    verify: bool = False,
    pairs: Pairs | None = None,
    matches: str | Path | None = None,
    ratio: float | None = None,
    workers: int | None = 1,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> HlocSummary:
    """Write hloc's features file of a folder of images and, optionally, its matches file.

    Resumable: run it again to continue, or to update both files after images were added, changed or removed.

    >>> import doap
    >>> doap.write_hloc("photos", "features.h5", pairs="pairs.txt", matches="matches.h5").pairs  # doctest: +SKIP
    1270

    Args:
        images: Folder of images; names in the files are paths inside it.
        out: The features file (HDF5). A file that doap did not write is not overwritten.
        descriptor, detector, max_keypoints, masks, tile, verify, workers: As for `doap.extract_folder`.
        pairs: Image pairs to match, with `matches`; see `doap.write_colmap`. Pairs with unreadable images are skipped.
        matches: The matches file (HDF5), with the same rule as `out`.
        ratio: Ratio test; see `doap.match`. None is the descriptor's own threshold, and 1 omits the test.
        device: Device of the network and of matching: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Called with the number of finished images and pairs, their total number, and the current one.
    """
    import_extra("h5py", "hloc")
    if (pairs is None) != (matches is None):
        raise ArgumentError("pairs and matches: expected both or neither, got one of them.")
    out, source = Path(out), ImageFolder.open(images, masks)
    listing = source.list()
    chosen = [] if pairs is None else resolve_pairs(pairs, list(listing))
    _check_names(chosen)
    settings: dict[str, Any] = {"detector": detector, "max_keypoints": max_keypoints, "tile": tile, "device": device}
    extractor, matching_device = open_extractor(descriptor, exact=True, **settings), resolve_device(device)
    ratio = extractor.extractor.ratio if ratio is None else ratio
    files, total = {"features": out}, len(listing) + len(chosen)
    if matches is not None:
        files["matches"] = Path(matches)

    def write(features: FeatureSet, extraction: ExtractionSummary) -> HlocSummary:
        current = {name: features.checksums[name] for name in features.names}
        found = [pair for pair in chosen if current.keys() >= set(pair)]

        def groups() -> Iterator[tuple[str, Arrays]]:
            for number, (name0, name1) in enumerate(found, start=total - len(found)):
                progress(number, total, f"{name0} {name1}")
                yield pair_group(name0, name1), match_arrays(read(name0), read(name1), ratio)

        @lru_cache(_CACHED_IMAGES)
        def read(name: str) -> Tensor:
            return features.read(name).features.descriptors.to(matching_device)

        origin = {"fingerprint": features.extractor.fingerprint, "images": current}
        _update(out, "features", origin, ((image.name, feature_arrays(image.features)) for image in features.stream()))
        if "matches" in files:
            _update(files["matches"], "matches", {**origin, "pairs": found, "ratio": ratio}, groups())
        progress(total, total, "finished")
        return HlocSummary(**{**vars(extraction), "out": out}, matches=files.get("matches"), pairs=len(found))

    with ExitStack() as locks:
        for content, path in files.items():
            locks.enter_context(OutputLock(make_folder(path.parent) / path.name))
            if path.exists() and not _read_line(path).startswith(_begin_line(content)):
                raise DataError(f"{path}: exists and is no {content} file that doap wrote. Choose another name.")
        folder = beside(out, "{}.features")
        return use_features(source, listing, folder, extractor, workers, total, progress, write, verify=verify)


def _begin_line(content: str) -> bytes:
    return f"doap hloc {content} {FORMAT} ".encode()


def _read_line(path: Path) -> bytes:
    """Return the line that tells what a file was written from; files of other programs begin with something else."""
    with path.open("rb") as file:
        return file.read(_LINE_BYTES).partition(b"\n")[0]


def _update(path: Path, content: str, origin: dict[str, Any], groups: Iterable[tuple[str, Arrays]]) -> None:
    """Write a file of groups of arrays, unless the present one was written from the same."""
    digest = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()
    line = _begin_line(content) + digest.encode()
    if path.exists() and _read_line(path) == line:
        return
    h5py = import_extra("h5py", "hloc")
    with atomic_write(path) as unfinished, _Output(unfinished, "w+") as output:
        # The latest layout, as in hloc.
        with h5py.File(output, "w", libver="latest", userblock_size=_LINE_BYTES) as file:
            for name, arrays in groups:
                group = file.create_group(name)
                for key, values in arrays.items():
                    group.create_dataset(key, data=np.ascontiguousarray(values))
                if output.fault:
                    break
        output.seek(0)
        output.write(line + b"\n")
        if output.fault:
            raise output.fault


class _Output(io.FileIO):
    """A file for HDF5, which may hang or crash if it learns of a full disk. The first fault is kept for later."""

    fault: OSError | None = None

    def write(self, content: Any) -> int:
        """Write all bytes, or none after a fault."""
        left = memoryview(content).cast("B")
        length = len(left)
        try:
            while self.fault is None and left:
                left = left[super().write(left) :]
        except OSError as error:
            self.fault = error
        return length

    def truncate(self, size: int | None = None) -> int:
        """Change the length of the file, which a full disk or a limit may prevent."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.fault = self.fault or error
            return size or 0


def pair_group(name0: str, name1: str) -> str:
    """Return the name of the group of two images."""
    return f"{_flatten(name0)}/{_flatten(name1)}"


def _flatten(name: str) -> str:
    return name.replace("/", "-")


def _check_names(pairs: Sequence[NamePair]) -> None:
    names: dict[str, str] = {}
    for name in {name for pair in pairs for name in pair}:
        if (other := names.setdefault(_flatten(name), name)) != name:
            raise DataError(
                f"{name} and {other}: hloc replaces / by - and cannot distinguish these names. Rename one image."
            )


def feature_arrays(features: Features) -> Arrays:
    """Return the arrays of an image."""
    height, width = features.image_size
    return {
        "keypoints": features.keypoints,
        "descriptors": features.descriptors.cpu().numpy().T,
        "scores": features.responses,
        "image_size": np.array([width, height]),
    }


def match_arrays(descriptors0: Tensor, descriptors1: Tensor, ratio: float | None = None) -> Arrays:
    """Match the descriptors (N0, D) and (N1, D) of two images; return the arrays of the pair."""
    matches, distances = match_descriptors(descriptors0, descriptors1, ratio=ratio)
    # As in hloc's nearest neighbours: (1 + cosine) / 2. For binary descriptors, the fraction of equal bits.
    binary = descriptors0.dtype == torch.uint8
    scores = 1 - (distances / (8 * descriptors0.shape[1]) if binary else distances.square() / 4)
    matches0, scores0 = np.full(len(descriptors0), -1, np.int32), np.zeros(len(descriptors0), np.float32)
    first, second = matches.cpu().numpy().T
    matches0[first], scores0[first] = second, scores.cpu().numpy()
    return {"matches0": matches0, "matching_scores0": scores0}
