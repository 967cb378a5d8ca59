"""Write features and matches as the HDF5 files of hloc (Hierarchical-Localization).

    NAME.features/       feature set of the images; later runs extract only what is new
    NAME                 hloc's features file, written from the feature set

Features: one group per image, named by its path inside the folder of images, with `keypoints` (N, 2) as (x, y),
`descriptors` (D, N), `scores` (N,), larger is stronger, and `image_size` (width, height). Matches: one group `A/B` for
images A and B, with every `/` in their names replaced by `-`. It holds `matches0` (N0,), the index in image B or −1,
and `matching_scores0` (N0,), larger is better. Additional attributes named `doap` hold settings and checksums; hloc
ignores them. The layout follows hloc's code (`extract_features.py`, `match_features.py`, `triangulation.py`,
`utils/io.py`: list_h5_names, get_keypoints, find_pair, get_matches, `utils/parsers.py`: names_to_pair,
`matchers/nearest_neighbor.py`):

- Pixel centres are at integers, as in doap. hloc adds the half pixel for COLMAP itself.
- Images are read as stored, without EXIF orientation, as in hloc and COLMAP.
- hloc writes `matches0` with 16 bits, which overflow at 32,768 keypoints, and 16-bit floats. It reads any type. doap
  writes 32 bits.
- Binary descriptors stay packed: `descriptors` (D/8, N) uint8. hloc's own matchers would interpret them as numbers, so
  match them with doap.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.device import resolve_device
from doap._support.errors import ArgumentError, DataError, import_extra
from doap._support.files import OutputLock, atomic_write, beside, make_folder
from doap._support.settings import validate
from doap.collection.extraction import ExtractionSummary, use_features
from doap.collection.extractor import ExtractorInfo, open_extractor
from doap.collection.features import FeatureSet
from doap.collection.image_folder import ImageFolder
from doap.detectors import Detector
from doap.export.hdf5 import Group, add_groups, copy_groups, read_contents
from doap.export.pairs import NamePair, Pairs, resolve_pairs
from doap.extractor import DescriptorSource
from doap.matching import match_descriptors
from doap.types import Features, Progress, no_progress

Arrays = dict[str, NDArray[Any]]
Settings = dict[str, Any]
FORMAT = 1
# A group of features has the checksum of its image; a group of matches has two names and two checksums.
_SOURCE_LENGTH = {"features": 1, "matches": 4}
# Images kept in memory while pairs are matched: about 1 MB each with 2,048 keypoints and 128 dimensions.
_CACHED_IMAGES = 64


@dataclass(frozen=True)
class HlocSummary:
    """Result of `write_hloc`.

    Attributes:
        out: The features file.
        images: Number of images in it.
        extracted: Number of images that this run extracted.
        reused: Number of images that an earlier run extracted and that have not changed since.
        skipped: Images without features, and the reasons.
        matches: The matches file, if one was written.
        pairs: Number of image pairs in it.
        matched: Number of pairs that this run matched.
        masks: Number of images with a mask; None without a folder of masks.
    """

    out: Path
    images: int
    extracted: int
    reused: int
    skipped: dict[str, str]
    matches: Path | None = None
    pairs: int = 0
    matched: int = 0
    masks: int | None = None


def write_hloc(
    images: str | Path,
    out: str | Path,
    descriptor: DescriptorSource = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    masks: str | Path | None = None,
    tile: int | None = None,
    pairs: Pairs | None = None,
    matches: str | Path | None = None,
    ratio: float | None = None,
    workers: int | None = 1,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> HlocSummary:
    """Write hloc's features file of a folder of images and, optionally, its matches file.

    Resumable: run it again to continue, or to update both files after images were added, changed or removed. Existing
    matches are kept if the features of both images are unchanged.

    >>> import doap
    >>> doap.write_hloc("photos", "features.h5", pairs="pairs.txt", matches="matches.h5").images  # doctest: +SKIP
    128

    Args:
        images: Folder of images; names in the files are paths inside it.
        out: The features file (HDF5). A file that doap did not write, or wrote with other settings, is not overwritten.
        descriptor, detector, max_keypoints, masks, tile, workers: As for `doap.extract_folder`.
        pairs: Image pairs to match, with `matches`; see `doap.write_colmap`. Pairs with unreadable images are skipped.
        matches: The matches file (HDF5), with the same rules as `out`.
        ratio: Ratio test; see `doap.match`.
        device: Device of the network and of matching: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Called with the number of finished images and pairs, their total number, and the current one.
    """
    import_extra("h5py", "hloc")
    if (pairs is None) != (matches is None):
        raise ArgumentError("pairs and matches: expected both or neither, got one of them.")
    images, out = Path(images), Path(out)
    source = ImageFolder.open(images, masks)
    listing = source.list()
    names = list(listing)
    chosen = [] if pairs is None else resolve_pairs(pairs, names)
    _check_names(chosen)
    extractor = open_extractor(
        descriptor, detector=detector, max_keypoints=max_keypoints, tile=tile, exact=True, device=device
    )
    files = _Files(
        out, None if matches is None else Path(matches), extractor.info, chosen, ratio, resolve_device(device)
    )
    folder, total = beside(out, "{}.features"), len(names) + len(chosen)
    with ExitStack() as locks:
        for path in files.paths:
            locks.enter_context(OutputLock(make_folder(path.parent) / path.name))
        write = partial(files.write, files.read_replaceable(), total, progress)
        return use_features(source, listing, folder, extractor, workers, total, progress, write)


@dataclass(frozen=True)
class _Files:
    """The files to write, and their settings."""

    features: Path
    matches: Path | None
    extractor: ExtractorInfo
    pairs: list[NamePair]
    ratio: float | None
    device: torch.device

    @property
    def paths(self) -> dict[Path, str]:
        """The files to write, and their contents."""
        return {self.features: "features"} | ({self.matches: "matches"} if self.matches else {})

    def settings(self, content: str) -> Settings:
        """Return the settings stored in the file of `features` or of `matches`."""
        settings = {"format": FORMAT, "content": content, "extractor": dataclasses.asdict(self.extractor)}
        return settings | ({"ratio": self.ratio} if content == "matches" else {})

    def read_replaceable(self) -> dict[Path, _Stored]:
        """Read the existing files; refuse to replace one that doap did not write or wrote with other settings."""
        existing = {}
        for path, content in self.paths.items():
            if not path.exists():
                continue
            if (stored := _read_stored(path)) is None:
                raise DataError(f"{path}: exists and is not an HDF5 file, or a damaged one. Choose another name.")
            if difference := stored.difference(self.settings(content)):
                raise DataError(f"{path}: exists and cannot be updated: {difference}. Choose another name.")
            existing[path] = stored
        return existing

    def write(
        self,
        existing: dict[Path, _Stored],
        total: int,
        progress: Progress,
        features: FeatureSet,
        extraction: ExtractionSummary,
    ) -> HlocSummary:
        """Write both files."""
        self._write_features(existing.get(self.features), features)
        extracted, reused, skipped = extraction.extracted, extraction.reused, extraction.skipped
        summary = HlocSummary(
            self.features, len(features), extracted, reused, skipped, self.matches, masks=extraction.masks
        )
        if self.matches is not None:
            before = existing.get(self.matches)
            pairs, matched = self._write_matches(self.matches, before, features, total, progress)
            summary = dataclasses.replace(summary, pairs=pairs, matched=matched)
        progress(total, total, "finished")
        return summary

    def _write_features(self, before: _Stored | None, features: FeatureSet) -> None:
        """Write the features file, unless it already holds the images of the feature set."""
        current = {name: [features.checksums[name]] for name in features.names}
        if before is not None and before.groups == current:
            return
        groups = (Group(image.name, feature_arrays(image.features), [image.checksum]) for image in features.stream())
        with atomic_write(self.features) as unfinished:
            add_groups(unfinished, groups, self.settings("features"))

    def _write_matches(
        self, out: Path, before: _Stored | None, features: FeatureSet, total: int, progress: Progress
    ) -> tuple[int, int]:
        """Bring the matches file up to date; return the number of its pairs and the number of pairs matched now.

        Matches are added to a second file, which is renamed at the end. The next run continues with it if it is intact.
        """
        unfinished = beside(out, "{}.unfinished")
        resumed = self._read_unfinished(unfinished)
        source = resumed or before
        current = {name: features.checksums[name] for name in features.names}
        kept = {
            group
            for group, (name0, checksum0, name1, checksum1) in (source.groups if source else {}).items()
            if current.get(name0) == checksum0 and current.get(name1) == checksum1
        }
        wanted = {pair_group(*pair): pair for pair in self.pairs if current.keys() >= set(pair)}
        missing = [pair for group, pair in wanted.items() if group not in kept]
        if before is not None and not resumed and not missing and len(kept) == len(before.groups):
            return len(kept), 0
        if source is not None:
            with atomic_write(unfinished) as copy:
                copy_groups(source.path, copy, sorted(kept))

        @lru_cache(_CACHED_IMAGES)
        def read(name: str) -> Tensor:
            return features.read(name).features.descriptors.to(self.device)

        def groups() -> Iterator[Group]:
            for number, (name0, name1) in enumerate(missing, start=total - len(missing)):
                progress(number, total, f"{name0} {name1}")
                arrays = match_arrays(read(name0), read(name1), self.ratio)
                yield Group(pair_group(name0, name1), arrays, [name0, current[name0], name1, current[name1]])

        add_groups(unfinished, groups(), None if source else self.settings("matches"))
        unfinished.replace(out)
        return len(kept) + len(missing), len(missing)

    def _read_unfinished(self, path: Path) -> _Stored | None:
        """Return the matches of an interrupted run, if they are intact and have the same settings."""
        with suppress(DataError):
            stored = _read_stored(path) if path.exists() else None
            return stored if stored and stored.difference(self.settings("matches")) is None else None
        return None


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


class _Stored(NamedTuple):
    """Settings and groups of a file that doap wrote earlier; `path` is named in errors."""

    path: Path
    settings: Settings
    groups: dict[str, list[str]]

    def difference(self, settings: Settings) -> str | None:
        """Explain why the file cannot be continued with these settings; None if it can."""
        if not self.settings:
            return "it was not written by doap"
        for key in ("format", "content", "ratio"):
            if self.settings.get(key) != settings.get(key):
                return f"{key} is {settings.get(key)!r} instead of {self.settings.get(key)!r}"
        extractor = validate(ExtractorInfo, self.settings.get("extractor"), f"{self.path}: damaged settings")
        return extractor.difference(ExtractorInfo(**settings["extractor"]))


def _read_stored(path: Path) -> _Stored | None:
    """Read an HDF5 file of unknown origin; return None if it is not HDF5 or was not closed properly."""
    if (contents := read_contents(path)) is None:
        return None
    try:
        settings = json.loads(contents.settings or "{}")
        groups = {name: json.loads(source) for name, source in contents.groups.items()}
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged ({error}). Remove it or choose another name.") from error
    if not isinstance(settings, dict):
        settings = {}
    for name, source in groups.items():
        validate(list[str], source, f"{path}: {name}")
    length = _SOURCE_LENGTH.get(str(settings.get("content")))
    if length and any(len(source) != length for source in groups.values()):
        raise DataError(f"{path}: damaged (unknown sources). Remove it or choose another name.")
    return _Stored(path, settings, groups)
