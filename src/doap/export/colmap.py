"""Write COLMAP databases with keypoints, descriptors and verified matches; `colmap mapper` is the next step.

    NAME.features/       feature set of the images; later runs extract only what is new
    NAME.unfinished      the database while it is being written; renamed to NAME at the end

pycolmap writes everything that COLMAP reads. The additional table `doap` holds a manifest: the images with their
checksums, and how they were extracted and matched. A run compares manifests to resume after an interruption, to reuse
matches, and to return at once if nothing has changed. The table also holds a checksum of all others, so that no run
discards what the user or COLMAP has added.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from doap._support.checks import check_choice
from doap._support.device import resolve_device
from doap._support.errors import ArgumentError, DataError, import_pycolmap
from doap._support.files import OutputLock, beside, make_folder
from doap.collection.extraction import ExtractionSummary, use_features
from doap.collection.extractor import ExtractorInfo, open_extractor
from doap.collection.features import FeatureSet
from doap.collection.image_folder import ImageFolder
from doap.detectors import Detector
from doap.export.colmap_database import (
    MAX_ERROR,
    CameraMode,
    create_database,
    make_keypoints,
    read_ids,
    verify_matches,
)
from doap.export.pairs import NamePair, Pairs, resolve_pairs
from doap.extractor import MAX_KEYPOINTS, DescriptorSource
from doap.metrics import quantise
from doap.pipeline import match
from doap.types import Features, Progress, no_progress

Manifest = dict[str, Any]
FORMAT = 1
# Images kept in memory while pairs are matched: about 5 MB each with 8,192 keypoints and 128 dimensions.
_CACHED_IMAGES = 32


@dataclass(frozen=True)
class ColmapSummary:
    """Contents of a database.

    Attributes:
        out: The database.
        unchanged: Whether the database was already up to date.
        images: Number of images.
        skipped: Images that are not in the database, and the reasons.
        keypoints: Number of keypoints of all images.
        descriptors: Number of stored descriptors; 0 if COLMAP's matcher cannot read them.
        pairs: Number of matched image pairs.
        matches: Number of matches of all pairs.
        verified_pairs: Number of pairs with verified matches.
        verified_matches: Number of matches that are inliers of their pair's two-view geometry.
        masks: Number of images with a mask; None without a folder of masks.
    """

    out: Path
    unchanged: bool
    images: int
    skipped: dict[str, str]
    keypoints: int
    descriptors: int
    pairs: int
    matches: int
    verified_pairs: int
    verified_matches: int
    masks: int | None = None


@dataclass(frozen=True)
class _Job:
    """Checked arguments of `write_colmap`, and the stamps of all images."""

    source: ImageFolder
    listing: dict[str, str]
    images: Path
    out: Path
    pairs: list[NamePair] | None
    ratio: float
    max_error: float
    camera_mode: CameraMode
    device: torch.device

    @property
    def total(self) -> int:
        """Number of images and pairs."""
        return len(self.listing) + len(self.pairs or ())


def write_colmap(
    images: str | Path,
    out: str | Path,
    descriptor: DescriptorSource = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = MAX_KEYPOINTS,
    masks: str | Path | None = None,
    tile: int | None = None,
    verify: bool = False,
    pairs: Pairs | None = "exhaustive",
    overlap: int = 10,
    ratio: float | None = None,
    max_error: float = MAX_ERROR,
    camera_mode: CameraMode = "auto",
    workers: int | None = 1,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> ColmapSummary:
    """Write a COLMAP database of a folder of images. Resumable: run it again to continue or to update the database.

    Matches are exact mutual nearest neighbours, verified by COLMAP with a fixed random seed. Real descriptors with 128
    dimensions are stored as bytes, with the label SIFT, for COLMAP's own matcher: it crashes if it reads others.

    >>> import doap
    >>> doap.write_colmap("photos", "database.db", "doap-128").images  # doctest: +SKIP
    128

    Args:
        images: Folder of images; names in the database are paths inside it.
        out: The database. A file that doap did not write, or that was changed since, is never overwritten.
        descriptor, masks, tile, verify, workers: As for `doap.extract_folder`.
        detector: Keypoint detector. By default COLMAP's SIFT, or the descriptor's own detector.
        max_keypoints: Maximum number of keypoints per image, counted as in COLMAP: two orientations count once.
        pairs: Image pairs to match: `exhaustive`, `sequential`, a file with two names per line, or a sequence of name
            pairs; None writes no matches and leaves matching to COLMAP.
        overlap: For `sequential`: number of following images that each image is matched with.
        ratio: Ratio test; see `doap.match`. None is the descriptor's own threshold, and 1 omits the test.
        max_error: Maximum epipolar error of a verified match in pixels; the default was found on validation scenes.
            COLMAP's default of 4 accepts matches of neighbouring keypoints, which make cameras less accurate. Use 4 for
            lenses with strong distortion.
        camera_mode: Images that share a camera, as in COLMAP: `auto` (by EXIF), `single`, `per-folder`, `per-image`.
        device: Device of the network and of matching: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Called with the number of finished images and pairs, their total number, and the current one.
    """
    import_pycolmap()
    check_choice(camera_mode, get_args(CameraMode), name="camera_mode")
    images, out, source = Path(images), Path(out), ImageFolder.open(images, masks)
    listing = source.list()
    chosen = None if pairs is None else resolve_pairs(pairs, list(listing), overlap)
    settings: dict[str, Any] = {"max_keypoints": max_keypoints, "tile": tile, "device": device}
    extractor = open_extractor(descriptor, detector=detector, default_detector="colmap-default", exact=True, **settings)
    if chosen is None and not _is_storable(info := extractor.info):
        found = f"a {info.kind} descriptor with D = {info.dim}"
        raise ArgumentError(f"pairs: COLMAP's matcher requires 128 real numbers, got {found}. Match with doap.")
    make_folder(out.parent)
    ratio = extractor.extractor.ratio if ratio is None else ratio
    job = _Job(source, listing, images, out, chosen, ratio, max_error, camera_mode, resolve_device(device))
    folder, write = beside(out, "{}.features"), partial(_write_database, job, progress)
    with OutputLock(out):
        _check_replaceable(out)
        return use_features(source, listing, folder, extractor, workers, job.total, progress, write, verify=verify)


def _write_database(
    job: _Job, progress: Progress, features: FeatureSet, extraction: ExtractionSummary
) -> ColmapSummary:
    manifest, previous = _make_manifest(job, features), _read_manifest(job.out)
    if previous != manifest:
        if previous is not None:
            _check_own(job.out)
        unfinished = beside(job.out, "{}.unfinished")
        if _read_manifest(unfinished) != manifest:
            _start_database(unfinished, job, features)
            if previous is not None:
                _copy_matches(job, unfinished, manifest, previous)
            _write_manifest(unfinished, manifest)
        if job.pairs is not None:
            _write_matches(unfinished, job, features, progress)
            progress(job.total, job.total, "geometric verification")
            verify_matches(unfinished, max_error=job.max_error)
        with closing(sqlite3.connect(unfinished)) as opened, opened:
            opened.execute("UPDATE doap SET checksum = ?", [_checksum(opened)])
        unfinished.replace(job.out)
    progress(job.total, job.total, "finished")
    summary = _summarise(job.out, features, unchanged=previous == manifest)
    return replace(summary, masks=extraction.masks)


def _make_manifest(job: _Job, features: FeatureSet) -> Manifest:
    pairs = None if job.pairs is None else hashlib.sha256(json.dumps(job.pairs).encode()).hexdigest()
    return {
        "format": FORMAT,
        "fingerprint": features.extractor.fingerprint,
        "images": {name: features.checksums[name] for name in features.names},
        "camera_mode": job.camera_mode,
        "pairs": pairs,
        "ratio": job.ratio,
        "max_error": job.max_error,
    }


def _is_storable(extractor: ExtractorInfo) -> bool:
    return extractor.kind == "real" and extractor.dim == 128


def _read_manifest(database: Path) -> Manifest | None:
    """Return the manifest of a database; None if there is none."""
    if not database.is_file():
        return None
    try:
        with closing(sqlite3.connect(database)) as opened:
            manifest: Manifest = json.loads(opened.execute("SELECT manifest FROM doap").fetchone()[0])
    except (sqlite3.DatabaseError, TypeError, json.JSONDecodeError):
        return None
    return manifest


def _check_replaceable(out: Path) -> None:
    """Refuse to replace a file that doap did not write, or a database that is open."""
    if out.exists() and _read_manifest(out) is None:
        raise DataError(f"{out}: exists and was not written by doap. Choose another name.")
    # SQLite would apply the journal of the open database to the new one.
    if (journal := beside(out, "{}-wal")).exists():
        raise DataError(f"{out}: another program has the database open ({journal.name} exists). Close it.")


def _write_manifest(database: Path, manifest: Manifest) -> None:
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("CREATE TABLE doap (manifest TEXT NOT NULL, checksum TEXT)")
        opened.execute("INSERT INTO doap (manifest) VALUES (?)", [json.dumps(manifest)])


def _check_own(out: Path) -> None:
    """Refuse to rewrite a database whose contents have changed since doap wrote them."""
    with closing(sqlite3.connect(out)) as opened:
        (written,) = opened.execute("SELECT checksum FROM doap").fetchone()
        if written != _checksum(opened):
            raise DataError(
                f"{out}: changed since doap wrote it, for example by COLMAP's matcher. Writing it again would discard "
                "these changes. Choose another name, or delete it."
            )


def _checksum(database: sqlite3.Connection) -> str:
    """Return a checksum of all tables but doap's own."""
    digest = hashlib.sha256()
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'doap' ORDER BY name")
    for (table,) in tables.fetchall():
        for row in database.execute(f'SELECT * FROM "{table}"'):
            values = [value if isinstance(value, bytes) else repr(value).encode() for value in row]
            digest.update(f"{table} {[len(value) for value in values]}".encode())
            for value in values:
                digest.update(value)
    return digest.hexdigest()


def _start_database(database: Path, job: _Job, features: FeatureSet) -> None:
    """Create a database with cameras, images, keypoints and descriptors."""
    pycolmap = import_pycolmap()
    for ending in ("", "-wal", "-shm"):
        beside(database, f"{{}}{ending}").unlink(missing_ok=True)
    create_database(database, job.images, features.names, job.camera_mode)
    # COLMAP reads the sizes and focal lengths of the cameras from the files.
    job.source.check_unchanged({name: job.listing[name] for name in features.names})
    store = _is_storable(features.extractor)
    with pycolmap.Database.open(database) as opened:
        ids = read_ids(opened)
        signed = store and any(bool((image.features.descriptors < 0).any()) for image in features.stream(ids))
        for image in features.stream(ids):
            opened.write_keypoints(ids[image.name], make_keypoints(image.features.frames))
            if store:
                codes = quantise(image.features.descriptors, signed=signed).numpy()
                sift = pycolmap.FeatureExtractorType.SIFT
                opened.write_descriptors(ids[image.name], pycolmap.FeatureDescriptors(sift, codes))


def _copy_matches(job: _Job, new: Path, manifest: Manifest, previous: Manifest) -> None:
    """Copy the matches of unchanged images from the previous database, if doap matched them by the same rules."""
    same_rules = all(previous.get(key) == manifest[key] for key in ("format", "fingerprint", "ratio"))
    if not same_rules or previous["pairs"] is None:
        return
    pycolmap = import_pycolmap()
    same = {name for name, checksum in manifest["images"].items() if previous["images"].get(name) == checksum}
    with pycolmap.Database.open(job.out) as before, pycolmap.Database.open(new) as after:
        old_ids, new_ids = read_ids(before), read_ids(after)
        same &= old_ids.keys() & new_ids.keys()
        for name0, name1 in job.pairs or ():
            if name0 in same and name1 in same and before.exists_matches(old_ids[name0], old_ids[name1]):
                matches = before.read_matches(old_ids[name0], old_ids[name1])
                after.write_matches(new_ids[name0], new_ids[name1], matches)


def _write_matches(database: Path, job: _Job, features: FeatureSet, progress: Progress) -> None:
    """Match all pairs that are not matched yet."""
    pycolmap = import_pycolmap()

    @lru_cache(_CACHED_IMAGES)
    def read(name: str) -> Features:
        stored = features.read(name).features
        return replace(stored, descriptors=stored.descriptors.to(job.device))

    with pycolmap.Database.open(database) as opened:
        ids = read_ids(opened)
        for number, (name0, name1) in enumerate(job.pairs or ()):
            progress(len(job.listing) + number, job.total, f"{name0} {name1}")
            if name0 not in ids or name1 not in ids or opened.exists_matches(ids[name0], ids[name1]):
                continue
            matches = match(read(name0), read(name1), ratio=job.ratio)
            opened.write_matches(ids[name0], ids[name1], matches.indices.astype(np.uint32))


def _summarise(database: Path, features: FeatureSet, *, unchanged: bool) -> ColmapSummary:
    pycolmap = import_pycolmap()
    reason = "COLMAP cannot read this format, or the size differs from that of the other images of a single camera."
    with pycolmap.Database.open(database) as opened:
        ids = read_ids(opened)
        refused = {name: f"{name}: {reason}" for name in features.names if name not in ids}
        return ColmapSummary(
            out=database,
            unchanged=unchanged,
            images=len(ids),
            skipped={**features.failed, **refused},
            keypoints=opened.num_keypoints(),
            descriptors=opened.num_descriptors(),
            pairs=opened.num_matched_image_pairs(),
            matches=opened.num_matches(),
            verified_pairs=sum(count > 0 for count in opened.read_two_view_geometry_num_inliers()[1]),
            verified_matches=opened.num_inlier_matches(),
        )
