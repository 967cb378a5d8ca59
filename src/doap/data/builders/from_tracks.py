"""Track files: the keypoints of a scene that show the same points, from which patches of any width are cut in minutes.

A track file is a Parquet table with one row per observation of a point, sorted by point. All columns are integers:

    point   number of the point, from 0
    image   position of the image in the metadata
    x, y    centre in pixels × `POSITION`, with pixel centres at integers
    size    log₂ of half the side of SIFT's support in pixels × `SIZE`
    angle   degrees × `ANGLE`, clockwise

The key `doap` of the schema metadata is JSON: format, scene, and of each image name, height, width and SHA-256.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from doap._support.errors import DataError
from doap._support.files import atomic_write, check_inside, make_folder, parse_json, sha256
from doap._support.settings import FORBID_EXTRA, validate
from doap.data.builders.from_colmap import write_tracks
from doap.data.builders.from_images import read_ledger
from doap.data.builders.tracks import Tracks, near_pairs, read_tracks
from doap.images import angles, centres, frames_from_arrays, scales
from doap.types import Progress, no_progress

FORMAT = 1
POSITION, SIZE, ANGLE = 32, 32, 2
SCHEMA = pa.schema(
    {
        "point": pa.int32(),
        "image": pa.int32(),
        "x": pa.int32(),
        "y": pa.int32(),
        "size": pa.int16(),
        "angle": pa.int16(),
    }
)
_REBUILD = "Copy the file again, or write it with `doap data tracks`."


@dataclass(frozen=True)
class TrackedImage:
    """An image of a track file: its name relative to the folder of photos, its size, and the SHA-256 of its file."""

    __pydantic_config__ = FORBID_EXTRA

    name: str
    height: Annotated[int, Field(ge=1)]
    width: Annotated[int, Field(ge=1)]
    sha256: str


@dataclass(frozen=True)
class _Meta:
    """Schema of the metadata."""

    __pydantic_config__ = FORBID_EXTRA

    format: int
    scene: str
    images: list[TrackedImage]


@dataclass(frozen=True)
class TrackedScene:
    """Contents of a track file."""

    name: str
    images: list[TrackedImage]
    tracks: Tracks


def write_track_file(
    model: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    database: str | Path,
    scene: str | None = None,
    folder: str = "",
) -> Path:
    """Write the tracks of a COLMAP model to a track file.

    Args:
        model: Folder with cameras, images and points3D (.bin or .txt).
        images: Folder that the model's image names are relative to.
        out: The file, for example `castle.parquet`.
        database: COLMAP database of the model. Its keypoints provide scale and orientation.
        scene: Name of the scene; None uses the name of the image folder.
        folder: Folder of the images in the folder of photos that `build_from_tracks` will get.
    """
    images, out = Path(images), Path(out)
    tracks = read_tracks(Path(model), Path(database))
    used, number = np.unique(tracks.image, return_inverse=True)
    names, sizes = [tracks.images[one] for one in used], [tracks.sizes[one] for one in used]
    listed = [
        TrackedImage((Path(folder) / name).as_posix(), height, width, sha256(images / name))
        for name, (height, width) in zip(names, sizes, strict=True)
    ]
    xy = centres(tracks.frames)
    columns = {
        "point": tracks.point,
        "image": number,
        "x": np.rint(POSITION * xy[:, 0]),
        "y": np.rint(POSITION * xy[:, 1]),
        "size": np.rint(SIZE * np.log2(scales(tracks.frames))),
        "angle": np.rint(ANGLE * angles(tracks.frames)),
    }
    meta = _Meta(FORMAT, scene or images.resolve().name, listed)
    arrays = [pa.array(values.astype(np.int64)).cast(SCHEMA.field(name).type) for name, values in columns.items()]
    schema = SCHEMA.with_metadata({"doap": json.dumps(asdict(meta), ensure_ascii=False)})
    encodings = dict.fromkeys(SCHEMA.names, "DELTA_BINARY_PACKED")
    with atomic_write(make_folder(out.parent) / out.name) as unfinished, unfinished.open("wb") as sink:
        pq.write_table(
            pa.table(arrays, schema=schema),
            sink,
            compression="zstd",
            compression_level=19,
            use_dictionary=False,
            column_encoding=encodings,
            write_page_checksum=True,
        )
    return out


def read_track_file(path: str | Path) -> TrackedScene:
    """Read a track file. Points of which two observations are at most 5 pixels apart in an image ignore each other."""
    path = Path(path)
    try:
        with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
            if file.schema_arrow.remove_metadata() != SCHEMA:
                raise DataError(f"{path}: not a track file. Expected the columns {', '.join(SCHEMA.names)}.")
            table = file.read(use_threads=False)
            stored = (file.schema_arrow.metadata or {}).get(b"doap", b"")
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        fault = "not a readable Parquet file" if path.exists() else "no such file"
        raise DataError(f"{path}: {fault}. {_REBUILD}") from error
    meta = parse_json(stored, str(path), "the metadata of a track file")
    if (found := meta.get("format")) != FORMAT:
        raise DataError(f"{path}: expected format {FORMAT}, got {found!r}. Write the file with this version of doap.")
    checked = validate(_Meta, meta, path)
    for image in checked.images:
        check_inside(image.name, path)
    if any(column.null_count for column in table.columns):
        raise DataError(f"{path}: damaged columns. {_REBUILD}")
    point, image, x, y, size, angle = (column.to_numpy().astype(np.int64) for column in table.columns)
    steps = np.diff(point, prepend=-1)
    in_range = (image >= 0) & (image < len(checked.images)) & (np.abs(size) < SIZE * 20)
    if not (in_range.all() and len(point) and np.isin(steps, (0, 1)).all() and steps[0] == 1):
        raise DataError(f"{path}: damaged columns. {_REBUILD}")
    xy = np.stack([x, y], 1) / POSITION
    ignore = [np.empty((0, 2), np.int64)]
    for number in range(len(checked.images)):
        own = image == number
        ignore.append(point[own][near_pairs(xy[own])])
    unique = np.unique(np.sort(np.concatenate(ignore), axis=1), axis=0)
    tracks = Tracks(
        images=[one.name for one in checked.images],
        sizes=[(one.height, one.width) for one in checked.images],
        xyz=np.zeros((point[-1] + 1, 3)),
        point=point,
        image=image,
        keypoint=np.zeros_like(point),
        frames=frames_from_arrays(xy, 2 ** (size / SIZE), angle / ANGLE),
        ignore=unique[unique[:, 0] != unique[:, 1]],
        dropped={},
    )
    return TrackedScene(checked.scene, checked.images, tracks)


def build_from_tracks(
    files: Sequence[str | Path],
    photos: str | Path,
    out: str | Path,
    *,
    ledger: str | Path | None = None,
    patch_size: int = 32,
    extent: float = 1.0,
    progress: Progress = no_progress,
) -> Path:
    """Build a patch set from track files and their photos; photos with other contents than the files name are refused.

    Resumable: call it again to continue an interrupted build.

        build_from_tracks(["castle.parquet"], "photos", "my.patches", extent=1.5)

    Args:
        files: Track files; each is a scene.
        photos: Folder that the image names in the files are relative to.
        out: Folder of the new set. It must not exist.
        ledger: CSV file with the columns file, scene and split, and any others. The rows of the photos are stored in
            the set.
        patch_size: Side S of the patches in pixels.
        extent: Patch side relative to SIFT's support of 12 σ: 1.5 gives a patch side of 18 σ.
        progress: Called before each scene.
    """
    photos, paths = Path(photos), [Path(file) for file in files]
    scenes = {scene.name: scene for scene in map(read_track_file, paths)}
    if len(scenes) < len(paths):
        raise DataError(
            f"{paths[0].parent}: expected one file per scene, got {len(paths)} files of {len(scenes)} scenes."
        )
    images = {image.name: image for scene in scenes.values() for image in scene.images}
    present = {name: image for name, image in images.items() if (photos / name).is_file()}
    if other := [name for name, image in present.items() if sha256(photos / name) != image.sha256]:
        raise DataError(f"{photos}: {len(other)} of {len(images)} photos differ from the tracks', such as {other[0]}.")
    rows: list[dict[str, Any]] = read_ledger(Path(ledger), None) if ledger else []
    builder = {"command": "from-tracks", "tracks": {path.name: sha256(path) for path in paths}}
    used = [row for row in rows if row["file"] in images]
    tracks = {name: scene.tracks for name, scene in scenes.items()}
    return write_tracks(tracks, photos, out, builder, used, patch_size, extent, progress)
