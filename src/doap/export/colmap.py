"""A COLMAP database with our keypoints, descriptors and matches: `colmap mapper` is the next step.

    NAME.features/       features of each image, kept: with new images or another pairing only what is new is done
    NAME.unfinished      the database while it is written; it becomes NAME by one rename, at the end

What COLMAP needs is written through pycolmap. One table more, `doap`, holds the plan: which images, in which state, by
what and how matched. COLMAP does not look at it. It tells a run that was killed where to go on, and one that has
nothing to do that it has nothing to do.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from doap.checks import check_choice, check_shape
from doap.describer import Describer
from doap.detectors import Detector
from doap.errors import ArgumentError, DataError, import_extra
from doap.export.feature_files import FeatureFiles
from doap.export.pairs import Pair, Pairing, exhaustive
from doap.functional import quantise
from doap.images import list_images
from doap.images.frames import SIFT_EXTENT
from doap.pipeline import match
from doap.types import Progress, no_progress

CameraMode = Literal["auto", "single", "per-folder", "per-image"]
Plan = dict[str, Any]
FORMAT = 1


@dataclass(frozen=True)
class Written:
    """What a database holds.

    Attributes:
        database: the file.
        unchanged: whether it had been finished before, so that nothing was done.
        images: how many images it has.
        skipped: names of the images that were left out, and why.
        keypoints: of all images.
        pairs: pairs of images that were matched.
        matches: of all pairs.
        verified_pairs: pairs in which COLMAP found a common geometry.
        verified_matches: matches that agree with it.
    """

    database: Path
    unchanged: bool
    images: int
    skipped: dict[str, str]
    keypoints: int
    pairs: int
    matches: int
    verified_pairs: int
    verified_matches: int


def write_database(
    images: str | Path,
    out: str | Path,
    descriptor: Describer,
    *,
    detector: Detector | None = None,
    max_keypoints: int = 8192,
    pairs: Pairing | None = exhaustive,
    ratio: float | None = None,
    camera_mode: CameraMode = "auto",
    progress: Progress = no_progress,
) -> Written:
    """Write a COLMAP database of a folder of images; killed, the same call resumes.

    Matches are our own, exact and mutual; COLMAP verifies their geometry, always with the same seed. Descriptors are
    stored too if they are 128 real numbers, as bytes (`doap.functional.quantise`), for COLMAP's own matcher and whoever
    reads the database. Others cannot be: COLMAP ends the process when its matcher meets another length or type.

    Args:
        images: folder; names in the database are paths inside it.
        out: the database; one that doap did not write is never overwritten.
        descriptor: a `Descriptor`, a peer such as `rootsift()`, or anything with their face.
        detector: where to look; SIFT's blobs if not given.
        max_keypoints: keypoints to keep of an image, the strongest; as many as COLMAP keeps.
        pairs: which images to match; None for no matches, so that COLMAP's own matcher can make them.
        ratio: as for `doap.match`.
        camera_mode: which images share a camera, as in COLMAP: `auto` by EXIF, `single` all, `per-folder`, `per-image`.
        progress: told the images and pairs done, how many there are, and which is at hand.

    Returns:
        What the database holds. An image that cannot be read is left out and told there.
    """
    _import_pycolmap()
    check_choice(camera_mode, get_args(CameraMode), name="camera_mode")
    if pairs is None and not _is_storable(descriptor):
        raise ArgumentError(
            f"pairs: expected some with a {descriptor.kind} descriptor of {descriptor.dim}, got none; "
            "COLMAP's own matcher knows 128 real numbers only"
        )
    images, out = Path(images), Path(out)
    names = [path.relative_to(images).as_posix() for path in list_images(images)]
    wanted = [] if pairs is None else pairs(names)
    previous = _read_previous(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    features = FeatureFiles(_beside(out, ".features"), images, descriptor, detector, max_keypoints)
    keys: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for number, name in enumerate(names):
        progress(number, len(names) + len(wanted), name)
        try:
            keys[name] = features.make(name)
        except DataError as error:
            skipped[name] = str(error)
    if not keys:
        raise DataError(f"{images}: expected images, got {len(names)} of which none can be read: {skipped[names[0]]}")
    plan: Plan = {"format": FORMAT, "camera_mode": camera_mode, "images": keys, "ratio": ratio}
    plan["pairs"] = None if pairs is None else hashlib.sha256(json.dumps(wanted).encode()).hexdigest()
    if previous != plan:
        unfinished = _beside(out, ".unfinished")
        if _read_plan(unfinished) != plan:
            _start(unfinished, images, list(keys), features, camera_mode, store=_is_storable(descriptor))
            if previous and pairs and previous["pairs"] and previous["ratio"] == ratio:
                same = {name for name, key in keys.items() if previous["images"].get(name) == key}
                _carry_over(out, unfinished, [pair for pair in wanted if same.issuperset(pair)])
            _write_plan(unfinished, plan)
        if pairs is not None:
            _write_matches(unfinished, wanted, features, ratio, len(names), progress)
            _verify(unfinished)
        unfinished.replace(out)
    progress(len(names) + len(wanted), len(names) + len(wanted), "finished")
    return _told(out, keys, skipped, unchanged=previous == plan)


def keypoints_of(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    """Frames (N, 2, 3) as COLMAP has them: its first pixel centre is (0.5, 0.5), ours is (0, 0).

    The size is σ, a sixth of half the side, whatever found the frame: so `doap data from-colmap` cuts the patch that
    was described. COLMAP itself does not use it.

    Returns:
        (N, 4) x, y, σ and orientation in radians, clockwise; if not all frames are square, (N, 6) x, y and A / 6.
    """
    check_shape(frames, "N 2 3", name="frames")
    precise = frames.astype(np.float64)
    shape, xy = precise[:, :, :2] / SIFT_EXTENT, precise[:, :, 2] + 0.5
    (a, b), (c, d) = shape.transpose(1, 2, 0)
    size = np.hypot(a, c)
    # The sides of an image made smaller are rounded to pixels, which leaves its frames a little off square.
    if (np.hypot(a - d, b + c) <= 1e-3 * size).all():
        return np.column_stack([xy, size, np.arctan2(c, a)]).astype(np.float32)
    return np.column_stack([xy, a, b, c, d]).astype(np.float32)


def _import_pycolmap() -> Any:
    pycolmap = import_extra("pycolmap", "colmap")
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    return pycolmap


def _is_storable(descriptor: Describer) -> bool:
    return descriptor.kind == "real" and descriptor.dim == 128


def _read_plan(database: Path) -> Plan | None:
    """The plan that a database was written after; None if there is none."""
    if not database.is_file():
        return None
    try:
        with closing(sqlite3.connect(database)) as opened:
            plan: Plan = json.loads(opened.execute("SELECT plan FROM doap").fetchone()[0])
    except (sqlite3.DatabaseError, TypeError, json.JSONDecodeError):
        return None
    return plan


def _read_previous(out: Path) -> Plan | None:
    """The plan of a finished database that is there; refuses to touch what is not ours or in use."""
    plan = _read_plan(out)
    if out.exists() and plan is None:
        raise DataError(f"{out}: expected nothing or a database that doap wrote, got another one; give another --out")
    # SQLite would take the journal of an open database for the journal of the new one.
    if (journal := _beside(out, "-wal")).exists():
        raise DataError(f"{out}: expected a database that no program has open, got {journal.name} beside it; close it")
    return plan


def _write_plan(database: Path, plan: Plan) -> None:
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("CREATE TABLE doap (plan TEXT NOT NULL)")
        opened.execute("INSERT INTO doap VALUES (?)", [json.dumps(plan)])


def _beside(database: Path, ending: str) -> Path:
    return database.with_name(database.name + ending)


def _start(
    database: Path, images: Path, names: list[str], features: FeatureFiles, camera_mode: CameraMode, *, store: bool
) -> None:
    """A new database with everything but matches."""
    pycolmap = _import_pycolmap()
    for ending in ("", "-wal", "-shm"):
        _beside(database, ending).unlink(missing_ok=True)
    pycolmap.Database.open(database).close()
    mode = getattr(pycolmap.CameraMode, camera_mode.upper().replace("-", "_"))
    pycolmap.import_images(database, images, mode, names)
    with pycolmap.Database.open(database) as opened:
        ids = _ids(opened)
        signed = store and any(bool((features.read(name).descriptors < 0).any()) for name in ids)
        for name, image in ids.items():
            found = features.read(name)
            opened.write_keypoints(image, keypoints_of(found.frames))
            if store:
                codes = quantise(found.descriptors, signed=signed).numpy()
                sift = pycolmap.FeatureExtractorType.SIFT
                opened.write_descriptors(image, pycolmap.FeatureDescriptors(sift, codes))


def _carry_over(old: Path, new: Path, pairs: list[Pair]) -> None:
    """Copy the matches of pairs that an earlier database has, of images that are still the same."""
    pycolmap = _import_pycolmap()
    with pycolmap.Database.open(old) as before, pycolmap.Database.open(new) as after:
        old_ids, new_ids = _ids(before), _ids(after)
        for pair in pairs:
            if old_ids.keys() >= set(pair) <= new_ids.keys() and before.exists_matches(*(old_ids[one] for one in pair)):
                matches = before.read_matches(*(old_ids[one] for one in pair))
                after.write_matches(*(new_ids[one] for one in pair), matches)


def _write_matches(
    database: Path, pairs: list[Pair], features: FeatureFiles, ratio: float | None, done: int, progress: Progress
) -> None:
    """Match those pairs that are not matched yet."""
    pycolmap = _import_pycolmap()
    with pycolmap.Database.open(database) as opened:
        ids = _ids(opened)
        for number, (name0, name1) in enumerate(pairs):
            progress(done + number, done + len(pairs), f"{name0} {name1}")
            if name0 not in ids or name1 not in ids or opened.exists_matches(ids[name0], ids[name1]):
                continue
            matches = match(features.read(name0), features.read(name1), ratio=ratio)
            opened.write_matches(ids[name0], ids[name1], matches.astype(np.uint32))


def _verify(database: Path) -> None:
    pycolmap = _import_pycolmap()
    options = pycolmap.TwoViewGeometryOptions(ransac={"random_seed": 0})
    pycolmap.geometric_verification(database, two_view_geometry_options=options)


def _ids(opened: Any) -> dict[str, int]:
    """Ids of a database's images by name."""
    return {image.name: image.image_id for image in opened.read_all_images()}


def _told(database: Path, keys: dict[str, str], skipped: dict[str, str], *, unchanged: bool) -> Written:
    pycolmap = _import_pycolmap()
    with pycolmap.Database.open(database) as opened:
        ids = _ids(opened)
        refused = {
            name: f"{name}: expected an image that COLMAP takes, got a format it does not read or, for one camera, "
            "another size"
            for name in keys
            if name not in ids
        }
        return Written(
            database,
            unchanged,
            len(ids),
            {**skipped, **refused},
            opened.num_keypoints(),
            opened.num_matched_image_pairs(),
            opened.num_matches(),
            opened.num_verified_image_pairs(),
            opened.num_inlier_matches(),
        )
