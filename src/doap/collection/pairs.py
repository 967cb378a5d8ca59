"""Select the image pairs of a collection to match: each image with the images its descriptors vote for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from doap._support.errors import ArgumentError, DataError
from doap._support.files import atomic_write
from doap.collection.features import FeatureSet, as_feature_set
from doap.collection.index import DescriptorIndex, as_index, build_index, check_extractor
from doap.collection.search import rank_images
from doap.types import Progress, no_progress

VOTING_KEYPOINTS = 300
"""Number of keypoints per image that vote: enough to find its scene, and few enough for a million images."""


def select_pairs(
    features: str | Path | FeatureSet,
    *,
    top: int = 20,
    index: str | Path | DescriptorIndex | None = None,
    max_keypoints: int = VOTING_KEYPOINTS,
    probes: int | None = None,
    progress: Progress = no_progress,
) -> list[tuple[str, str]]:
    """Select for each image the images that resemble it most.

    Args:
        features: Features of the images.
        top: Number of partners per image. An image may be in more pairs, because others select it too.
        index: Index to search, or its folder. None builds a temporary one of the `max_keypoints` strongest keypoints
            of `features`. Images that are only in the index are found too.
        max_keypoints: Maximum number of keypoints per image that vote; the strongest are used.
        probes: As for `search_images`.
        progress: Called for every image.

    Returns:
        Pairs of names, without duplicates, sorted; the smaller name comes first.
    """
    if top < 1 or max_keypoints < 1:
        raise ArgumentError(f"top and max_keypoints: expected 1 or more, got {top} and {max_keypoints}.")
    features = as_feature_set(features)
    pairs: set[tuple[str, str]] = set()
    with TemporaryDirectory() as folder:
        if index is None:
            index = build_index(features, Path(folder) / "index", max_keypoints=max_keypoints, progress=progress)
        index = as_index(index)
        check_extractor(index.name, index.extractor, features)
        for done, image in enumerate(features.stream(), start=1):
            progress(done, len(features), image.name)
            voters = image.features.strongest(max_keypoints).descriptors
            for found, _ in rank_images(index, voters, top, probes=probes, exclude=image.name):
                pairs.add((min(image.name, found), max(image.name, found)))
    return sorted(pairs)


def write_pairs(pairs: Sequence[tuple[str, str]], out: str | Path) -> Path:
    """Write pairs as text with two names per line, as COLMAP, hloc and `doap colmap --pairs` read them."""
    out = Path(out)
    for name in {name for pair in pairs for name in pair}:
        if name.split() != [name] or name.startswith("#"):
            raise DataError(
                f"{name!r}: a list of pairs cannot hold names that contain spaces or start with #. Rename the image."
            )
    with atomic_write(out) as unfinished:
        unfinished.write_text("".join(f"{first} {second}\n" for first, second in pairs), encoding="utf-8")
    return out
