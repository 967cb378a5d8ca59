"""Write features as the files of OpenSfM, which OpenDroneMap (ODM) uses.

    FOLDER.features/            feature set of the images; later runs extract only what is new
    FOLDER/NAME.features.npz    one file per image, written from the feature set; NAME has its extension
    FOLDER/_doap.json           names of these files, and what they were written from

The layout follows OpenSfM's code (`features.py`: FeaturesData, normalized_image_coordinates; `dataset.py`):

- `points` (N, 4) float32: x, y, size and angle. x and y are relative to the centre of the image. x, y and size are
  divided by the longer side of the image. The size is OpenCV's `KeyPoint.size`, as for OpenSfM's SIFT. Angles are in
  degrees, clockwise.
- `descriptors` (N, D) float32, or (N, D/8) uint8 for bits. `colors` (N, 3) uint8: red, green, blue.
- `segmentations`, `instances` and `segmentation_labels` are empty. `OPENSFM_FEATURES_VERSION` is 3.
- OpenSfM ignores folders in the names of images. It reads images without EXIF orientation, as doap does.
- With its default `feature_type: HAHOG`, OpenSfM converts all descriptors to floats. Bits need `feature_type: ORB`.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from doap._support.errors import DataError
from doap._support.files import OutputLock, atomic_write, beside, make_folder, read_json
from doap._support.settings import validate
from doap.collection.extraction import ExtractionSummary, use_features
from doap.collection.extractor import open_extractor
from doap.collection.features import FeatureSet
from doap.collection.image_folder import ImageFolder
from doap.detectors import Detector
from doap.extractor import MAX_KEYPOINTS, DescriptorSource
from doap.images import angles, scales
from doap.types import Features, Progress, no_progress

MANIFEST = "_doap.json"
# What each file was written from. Files are deleted by these names, so they must not lead out of the folder.
_Manifest = dict[Annotated[str, Field(pattern=r"^[^/\\]+\.npz$")], str]


def write_opensfm(
    images: str | Path,
    out: str | Path,
    descriptor: DescriptorSource = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = MAX_KEYPOINTS,
    masks: str | Path | None = None,
    tile: int | None = None,
    verify: bool = False,
    workers: int | None = 1,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> ExtractionSummary:
    """Write the features of a folder of images as the files of OpenSfM and ODM.

    Resumable: run it again to continue, or to update the files after images were added, changed or removed. Files of
    images that are gone are deleted.

    >>> import doap
    >>> doap.write_opensfm("project/images", "project/features").extracted  # doctest: +SKIP
    128

    Args:
        images: Folder of images. OpenSfM ignores subfolders in names, so two images may not have the same name.
        out: Folder of the files: `features` in an OpenSfM project. Feature files that doap did not write are not
            overwritten.
        descriptor, detector, masks, tile, verify, workers: As for `doap.extract_folder`.
        max_keypoints: Maximum number of keypoints per image.
        device: Device of the network: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Called with the number of processed images, the number of images, and the speed.
    """
    out, source = Path(out), ImageFolder.open(images, masks)
    listing = source.list()
    files: dict[str, str] = {}
    for name in listing:
        if (other := files.setdefault(_file(name), name)) != name:
            raise DataError(f"{name} and {other}: the features of both would be {_file(name)}. Rename one image.")
    settings: dict[str, Any] = {"detector": detector, "max_keypoints": max_keypoints, "tile": tile, "device": device}
    extractor = open_extractor(descriptor, exact=True, **settings)

    def write(features: FeatureSet, extraction: ExtractionSummary) -> ExtractionSummary:
        _update_files(source, out, features)
        return replace(extraction, out=out)

    with OutputLock(make_folder(out), inside=True):
        own = _read_manifest(out)
        if foreign := next((out / file for file in files if file not in own and (out / file).exists()), None):
            raise DataError(f"{foreign}: exists and was not written by doap. Delete it or choose another folder.")
        folder, total = beside(out, "{}.features"), len(listing)
        return use_features(source, listing, folder, extractor, workers, total, progress, write, verify=verify)


def _file(image: str) -> str:
    return f"{PurePosixPath(image).name}.features.npz"


def _read_manifest(folder: Path) -> dict[str, str]:
    path, what = folder / MANIFEST, "a list of feature files"
    return validate(_Manifest, read_json(path, what), f"{path}: not {what}") if path.exists() else {}


def _write_manifest(folder: Path, files: dict[str, str]) -> None:
    with atomic_write(folder / MANIFEST) as unfinished:
        unfinished.write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")


def _update_files(source: ImageFolder, out: Path, features: FeatureSet) -> None:
    """Write the files that are missing or were written from other features, and delete those of earlier images."""
    before, fingerprint = _read_manifest(out), features.extractor.fingerprint
    current = {_file(name): f"{fingerprint} {features.checksums[name]}" for name in features.names}
    kept = {file: origin for file, origin in before.items() if current.get(file) == origin and (out / file).exists()}
    # A file is doap's own even if this run is interrupted; without an origin, it is written again.
    _write_manifest(out, {**dict.fromkeys([*before, *current], ""), **kept})
    for image in features.stream([name for name in features.names if _file(name) not in kept]):
        pixels = source.read_colour(image.name, image.checksum)
        content = io.BytesIO()
        np.savez_compressed(content, **_arrays(image.features, features.extractor.magnification, pixels))
        with atomic_write(out / _file(image.name)) as unfinished:
            unfinished.write_bytes(content.getvalue())
    for file in before.keys() - current.keys():
        (out / file).unlink(missing_ok=True)
    _write_manifest(out, current)


def _arrays(features: Features, magnification: float, pixels: NDArray[np.uint8]) -> dict[str, Any]:
    """Return the content of the file of an image with colours (H, W, 3): blue, green, red."""
    height, width = features.image_size
    longest, keypoints = max(height, width), features.keypoints.astype(np.float64)
    xy = (keypoints + 0.5 - np.array([width, height]) / 2) / longest
    size = 2 * scales(features.frames) / magnification / longest
    columns, rows = np.rint(keypoints).astype(int).clip(0, np.array(pixels.shape[1::-1]) - 1).T
    return {
        "points": np.column_stack([xy, size, angles(features.frames) % 360]).astype(np.float32),
        "descriptors": features.descriptors.cpu().numpy(),
        "colors": pixels[rows, columns, ::-1],
        "segmentations": [],
        "instances": [],
        "segmentation_labels": [],
        "OPENSFM_FEATURES_VERSION": 3,
    }
