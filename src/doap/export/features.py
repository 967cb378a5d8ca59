"""Write features as the files of other programs: one or two files per image, in one folder.

    FOLDER.features/     feature set of the images; later runs extract only what is new
    FOLDER/              the files, written from the feature set
    FOLDER/_doap.json    names of the files

To add a format, write a `FeatureFormat` and add it to `FEATURE_FORMATS`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

from doap._support.checks import check_choice
from doap._support.errors import DataError
from doap._support.files import OutputLock, atomic_write, beside, make_folder, read_json
from doap._support.settings import FORBID_EXTRA, validate
from doap.collection.extraction import ExtractionSummary, use_features
from doap.collection.extractor import open_extractor
from doap.collection.features import FeatureSet
from doap.collection.image_folder import ImageFolder
from doap.detectors import Detector
from doap.export.feature_format import DescribedImage, FeatureFormat
from doap.export.openmvg import OPENMVG
from doap.export.opensfm import OPENSFM
from doap.extractor import DescriptorSource
from doap.types import Progress, no_progress

FEATURE_FORMATS: dict[str, FeatureFormat] = {"opensfm": OPENSFM, "openmvg": OPENMVG}
"""Formats of `write_features` by name."""
MANIFEST = "_doap.json"


@dataclass(frozen=True)
class FeatureFilesSummary:
    """Result of `write_features`.

    Attributes:
        out: Folder of the files.
        images: Number of images with files.
        extracted: Number of images that this run extracted.
        reused: Number of images that an earlier run extracted and that have not changed since.
        skipped: Images without features, and the reasons.
        masks: Number of images with a mask; None without a folder of masks.
    """

    out: Path
    images: int
    extracted: int
    reused: int
    skipped: dict[str, str]
    masks: int | None = None


def write_features(
    images: str | Path,
    out: str | Path,
    descriptor: DescriptorSource = "doap-128",
    *,
    to: str,
    detector: str | Detector | None = None,
    max_keypoints: int = 8192,
    masks: str | Path | None = None,
    tile: int | None = None,
    workers: int | None = 1,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> FeatureFilesSummary:
    """Write the features of a folder of images as the files of OpenSfM (and ODM) or openMVG.

    Resumable: run it again to continue, or to update the files after images were added, changed or removed. Files of
    images that are gone are deleted.

    >>> import doap
    >>> doap.write_features("project/images", "project/features", to="opensfm").images  # doctest: +SKIP
    128

    Args:
        images: Folder of images. Both programs ignore subfolders in names, so two images may not have the same name.
        out: Folder of the files: `features` in an OpenSfM project, or the folder of matches of openMVG. Feature files
            that doap did not write are not overwritten.
        descriptor, detector, masks, tile, workers: As for `doap.extract_folder`.
        to: Format, `opensfm` or `openmvg`.
        max_keypoints: Maximum number of keypoints per image.
        device: Device of the network: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Called with the number of processed images, the number of images, and the speed.
    """
    check_choice(to, tuple(FEATURE_FORMATS), name="to")
    images, out, target = Path(images), Path(out), FEATURE_FORMATS[to]
    source = ImageFolder.open(images, masks)
    listing = source.list()
    names = list(listing)
    _check_names(names, target)
    extractor = open_extractor(
        descriptor, detector=detector, max_keypoints=max_keypoints, tile=tile, exact=True, device=device
    )
    common = target.prepare(extractor.info)
    with OutputLock(make_folder(out), inside=True):
        _claim(out, [*common, *(file for name in names for file in target.files(name))])
        folder = beside(out, "{}.features")
        write = partial(_write_files, source, out, target, common)
        return use_features(source, listing, folder, extractor, workers, len(names), progress, write)


def _check_names(names: Sequence[str], target: FeatureFormat) -> None:
    """Refuse images whose files would have the same name."""
    stems: dict[str, str] = {}
    for name in names:
        if (other := stems.setdefault(target.stem(name), name)) != name:
            raise DataError(f"{name} and {other}: the features of both would be {target.stem(name)}. Rename one image.")


@dataclass(frozen=True)
class _Manifest:
    """The files that doap wrote into a folder, or was going to write."""

    __pydantic_config__ = FORBID_EXTRA

    # Files are deleted by these names, so they must not lead out of the folder.
    files: list[Annotated[str, Field(pattern=r"^[^/\\]+\.(npz|feat|desc|json)$")]]

    @classmethod
    def read(cls, folder: Path) -> _Manifest:
        path, what = folder / MANIFEST, "a list of feature files"
        return validate(cls, read_json(path, what), f"{path}: not {what}") if path.exists() else cls([])

    @staticmethod
    def write(folder: Path, files: Iterable[str]) -> None:
        with atomic_write(folder / MANIFEST) as unfinished:
            content = dataclasses.asdict(_Manifest(sorted(files)))
            unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _claim(out: Path, files: Sequence[str]) -> None:
    """Refuse to overwrite files that doap did not write, and list the given files in the manifest."""
    own = set(_Manifest.read(out).files)
    if foreign := next((out / name for name in files if name not in own and (out / name).exists()), None):
        raise DataError(f"{foreign}: exists and was not written by doap. Delete it or choose another folder.")
    _Manifest.write(out, own.union(files))


def _write_files(
    source: ImageFolder,
    out: Path,
    target: FeatureFormat,
    common: dict[str, bytes],
    features: FeatureSet,
    extraction: ExtractionSummary,
) -> FeatureFilesSummary:
    """Write the files of all images, and delete those of earlier images."""
    real = features.kind == "real"
    signed = real and any(bool((image.features.descriptors < 0).any()) for image in features.stream())
    _write_all(out, common)
    for image in features.stream():
        read_colour = partial(source.read_colour, image.name, image.checksum)
        described = DescribedImage(read_colour, image.features, features.extractor, signed)
        contents = (encode(described) for encode in target.encoders.values())
        _write_all(out, dict(zip(target.files(image.name), contents, strict=True)))
    current = {*common, *(file for name in features.names for file in target.files(name))}
    for name in set(_Manifest.read(out).files) - current:
        (out / name).unlink(missing_ok=True)
    _Manifest.write(out, current)
    return FeatureFilesSummary(
        out, len(features), extraction.extracted, extraction.reused, extraction.skipped, extraction.masks
    )


def _write_all(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        with atomic_write(folder / name) as unfinished:
            unfinished.write_bytes(content)
