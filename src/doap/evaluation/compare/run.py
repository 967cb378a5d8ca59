"""The comparison as a whole: photos → views, pairs, models → verdict → a page and a JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from doap.describer import Describer
from doap.detectors import Detector, sift
from doap.errors import ArgumentError, DataError
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.compare.comparison import Comparison
from doap.evaluation.compare.models import Reconstruction, reconstruct
from doap.evaluation.compare.overlaps import JOINED, JOINED_SHARE, draw_pairs, score_pairs
from doap.evaluation.compare.page import write_page
from doap.evaluation.compare.shots import LONGEST_SIDE, VIEWS, spread, take
from doap.evaluation.compare.verdict import decide
from doap.evaluation.compare.views import evaluate_views
from doap.evaluation.run import descriptor_info, versions
from doap.files import atomic_write, make_folder
from doap.types import Progress, no_progress


def compare_photos(
    paths: Sequence[str | Path],
    describers: Mapping[str, Describer],
    out: str | Path,
    *,
    files: Mapping[str, Path] | None = None,
    detector: Detector | None = None,
    max_keypoints: int = 2048,
    photos: int = 20,
    pairs: int = 200,
    reconstruction: bool = True,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Comparison:
    """Hold one descriptor against others on photos of which nothing is known; all see the same keypoints.

    Writes `index.html`, a page that needs nothing else, and `comparison.json`. For the rule see `compare.verdict`.

    Args:
        paths: files of photos, in the order they were taken if there is one.
        describers: by name; the first is the candidate.
        out: folder of the progress, made if it is not there.
        files: where a describer was read from, by name.
        detector: where to look; SIFT's blobs if not given.
        max_keypoints: keypoints of a photo, the strongest.
        photos: to judge on; of more, runs of five neighbours are taken, spread over all.
        pairs: of these photos, to match; all if they are no more, else the nearest neighbours.
        reconstruction: whether COLMAP is tried; it takes the longest.
        seed: of all that is drawn.
        progress: told what is at hand, stage by stage.
    """
    if len(describers) < 2:
        raise ArgumentError(f"describers: expected a candidate and one other or more, got {list(describers)}")
    if min(max_keypoints, photos, pairs) < 1:
        raise ArgumentError(
            f"max_keypoints, photos and pairs: expected 1 or more, got {max_keypoints}, {photos} and {pairs}"
        )
    detector, out = detector or sift(), Path(out)
    make_folder(out)
    given = list(dict.fromkeys(map(Path, paths)))
    describing = {name: CachedDescriber(describer) for name, describer in describers.items()}
    shots, left_out = take(spread(given, photos), describing, detector, max_keypoints, progress)
    if not shots:
        why = next(iter(left_out.values()), "no photo")
        raise DataError(f"photos: expected one or more to judge on, got none of {len(given)}: {why}")
    keypoints = sum(len(shot.photo.frames) for shot in shots)
    seconds = {name: 1000 * describe.seconds / keypoints for name, describe in describing.items()}
    views = evaluate_views(shots, describing, detector, max_keypoints, seed, progress)
    overlaps = score_pairs(shots, list(describers), pairs, seed, progress)
    models: dict[str, Reconstruction] = {}
    note = "not asked for"
    if reconstruction:
        models, note = reconstruct(shots, overlaps.items, describers, detector, max_keypoints, seed, progress)
    descriptors = tuple(descriptor_info(name, one, (files or {}).get(name)) for name, one in describing.items())
    comparison = Comparison(
        verdict=decide(overlaps, views, descriptors, seconds, len(shots)),
        descriptors=descriptors,
        photos=[shot.name for shot in shots],
        left_out=left_out,
        given=len(given),
        views=views,
        pairs=overlaps,
        models=models,
        models_note=note,
        seconds=seconds,
        settings={
            "detector": detector.name,
            "magnification": detector.magnification,
            "keypoints of a photo": max_keypoints,
            "photos at most": photos,
            "pairs at most": pairs,
            "longest side": LONGEST_SIDE,
            "views of a photo": VIEWS,
            "matches": "mutual nearest neighbours, no ratio test",
            "geometry": "fundamental matrix by USAC_MAGSAC, 1.5 px",
            "a pair overlaps": f"{JOINED} inliers and {JOINED_SHARE * 100:.0f} % of the matches, by any descriptor",
            "interval": "95 % of 1,000 resamples of photos",
        },
        seed=seed,
        date=datetime.date.today().isoformat(),
        versions=versions(),
    )
    with atomic_write(out / "comparison.json") as unfinished:
        text = json.dumps(comparison.told(), indent=1, ensure_ascii=False)
        unfinished.write_text(text + "\n", encoding="utf-8")
    write_page(comparison, draw_pairs(shots, overlaps), out / "index.html")
    return comparison
