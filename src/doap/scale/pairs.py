"""Which images of a collection are worth matching: each with those that its descriptors vote for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError, DataError
from doap.files import atomic_write
from doap.scale.features import FeatureSet
from doap.scale.index import Index, build_index, check_extractor
from doap.scale.search import NEIGHBOURS, cast_votes, most_voted
from doap.types import Progress, no_progress

MOST = 300
"""Keypoints of an image that vote: enough to find the place, and few enough for a million images."""


def select_pairs(
    features: FeatureSet,
    *,
    top: int = 20,
    index: Index | None = None,
    max_keypoints: int = MOST,
    neighbours: int = NEIGHBOURS,
    probes: int | None = None,
    progress: Progress = no_progress,
) -> list[tuple[str, str]]:
    """For each image those it has most in common with.

    One image is in memory at a time, beside the index and two numbers for each pair.

    Args:
        features: of the images.
        top: others to take for each image. A pair counts if either wants the other, so an image may be in more.
        index: where to look for others; one of the `most` strongest keypoints of `features`, made for the moment, if
            not given. Images that are in the index alone are found too.
        max_keypoints: keypoints of an image that vote, the strongest.
        neighbours, probes: as for `cast_votes`.
        progress: told of each image.

    Returns:
        Pairs of names, each once, the smaller name first, sorted.
    """
    if top < 1 or max_keypoints < 1:
        raise ArgumentError(f"top and most: expected 1 or more, got {top} and {max_keypoints}")
    if index is None:
        with TemporaryDirectory() as folder:
            made = Index(build_index(features, Path(folder) / "index", max_keypoints=max_keypoints, progress=progress))
            return select_pairs(
                features,
                top=top,
                index=made,
                max_keypoints=max_keypoints,
                neighbours=neighbours,
                probes=probes,
                progress=progress,
            )
    check_extractor(index.folder, index.meta, features)
    names = sorted({*features.names, *index.names})
    place = {name: number for number, name in enumerate(names)}
    chosen: list[NDArray[np.int64]] = [np.empty((0, 2), np.int64)]
    for done, image in enumerate(features.stream(), start=1):
        progress(done, len(features), image.name)
        voters = image.features.strongest(max_keypoints).descriptors
        votes = cast_votes(index, voters, neighbours=neighbours, probes=probes)
        best = most_voted(index, votes, top, but=index.images.number_of.get(image.name))
        others = [place[index.images.names[number]] for number, _ in best]
        pairs = np.array([(place[image.name], other) for other in others], np.int64).reshape(-1, 2)
        chosen.append(np.sort(pairs, axis=1))
    return [(names[first], names[second]) for first, second in np.unique(np.concatenate(chosen), axis=0).tolist()]


def write_pairs(pairs: Sequence[tuple[str, str]], out: str | Path) -> Path:
    """Write pairs as COLMAP and hloc read them, and `doap colmap --pairs`: two names to a line."""
    out = Path(out)
    for name in {name for pair in pairs for name in pair}:
        # Nobody who reads such lists can tell where a name with a space ends.
        if name.split() != [name]:
            raise DataError(f"{name!r}: expected names without spaces in a list of pairs, got one; rename the image")
    with atomic_write(out) as unfinished:
        unfinished.write_text("".join(f"{first} {second}\n" for first, second in pairs), encoding="utf-8")
    return out
