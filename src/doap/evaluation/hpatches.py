"""Benchmark `hpatches`: verification, matching and retrieval on the patch release of HPatches.

Each task is scored with three AP protocols:

    tie-aware   AP expected over random orders of ties; 20,000 distractors.
    python      AP of the benchmark's Python program: the area under straight lines between the points of the
                precision-recall curve; 20,000 distractors.
    matlab      AP of its MATLAB program: the mean of the precision at each positive; the first 2,000 distractors.

The tasks are:

    verification   Positive pairs against negative pairs of the same sequence (`intra`) or of different sequences
                   (`inter`): all negatives, and the first positives, a fifth as many. Mean over three noise levels
                   and intra, inter. `python` ranks negatives first among ties, `matlab` positives.
    matching       Each reference patch is matched with its nearest neighbour in another image of the sequence. AP
                   ranks the matches by distance and counts every patch as a positive. Mean over sequences, images
                   and noise levels. `python` and `matlab` break ties by file order, `tie-aware` randomly.
    retrieval      Each query has five matches in other images, among distractors of other sequences. Mean over
                   queries and noise levels. `python` and `matlab` rank matches first among ties, so equal
                   descriptors score 1.

`python` never exceeds `matlab` on the same ranking, because the straight line to a positive lies below the step,
and in retrieval it uses more distractors. It is the lower of the two in every task.

Published tables leave some choices open. A note in the MATLAB program says that the article used all distractors,
not the default of 2,000. The newer Python program plots retrieval as the mean over seven pool sizes, the older one
printed each; here it is the largest. It also plots matching as the mean of the illumination and the viewpoint
sequences, which are both parts here; the older one printed the mean of all sequences.

Intervals resample sequences in all tasks, because the image pairs, the queries and the pairs of patches of one
sequence show the same plane. One sequence has no interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from doap._support.checks import check_choice
from doap._support.errors import DataError
from doap.data.readers import HPatches, PatchList, read_hpatches
from doap.data.readers.hpatches import (
    RETRIEVAL,
    SIDE,
    STRIPS,
    VERIFICATION,
    read_patch_list,
    read_patch_pairs,
    read_splits,
    task_file,
)
from doap.evaluation.benchmark import BenchmarkSettings, dataset_of
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.hpatches_scores import (
    AP_PROTOCOLS,
    IMAGES,
    MATLAB_DISTRACTORS,
    NOISE,
    POSITIVES,
    TaskPatches,
    Verification,
    match_sequence,
    retrieve_queries,
    score_verification,
)
from doap.evaluation.result import Estimate, Figure, Scores
from doap.types import Progress, no_progress

KINDS = {"i_": "illumination", "v_": "viewpoint"}
"""Kinds of sequences by the prefix of their names."""
Floats = NDArray[np.float64]
Locate = Callable[[PatchList, Path], TaskPatches]


class HPatchesBenchmark:
    """The test sequences of a split and their tasks.

    Pixels are read when they are described, because those of a split take 4 GB. A task is left out if its files
    are missing; the protocol lists it.

    `root` is the patch release: a folder of sequences.
    """

    class Settings(BenchmarkSettings):
        """Settings of the benchmark `hpatches`."""

        split: str = Field("a", description="Split whose test sequences are used: a, b, c, illum, view or full.")
        tasks: Path | None = Field(
            None, description="Folder of splits.json and the task files; `tasks` in the root by default."
        )

    name = "hpatches"
    needs: Needs = "patches"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        root, chosen = Path(root), self.Settings.parse(settings)
        tasks, split = chosen.tasks or root / "tasks", chosen.split
        splits = read_splits(tasks)
        check_choice(split, tuple(splits), name="split")
        self.release, self.sequences = read_hpatches(root), splits[split]
        _check_sequences(self.release, self.sequences, root, split)
        sizes = [self.release.count(name) for name in self.sequences]
        locate = partial(_locate, self.sequences, sizes)
        self.retrieval = _open_retrieval(tasks, split, locate)
        self.verification = _open_verification(tasks, split, locate, len(self.sequences))
        left_out, files = {}, []
        for task, kinds, pattern in (("retrieval", RETRIEVAL, "retr"), ("verification", VERIFICATION, "verif")):
            if _has_files(tasks, kinds, split):
                files += [task_file(tasks, kind, split) for kind in kinds]
            else:
                left_out[task] = f"no {pattern}_*_split-{split}.csv"
        pixels = _strip_files(root, self.sequences, progress)
        self.dataset = dataset_of(root, chain(files, pixels), f"{root.resolve().name}-{split}")
        self.protocol = _protocol(split, len(self.sequences), left_out)

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score all tasks with each AP protocol; matching, which needs no task files, comes first."""
        by_sequence = [_describe(candidate, self.release.load(sequence)) for sequence in self.sequences]
        descriptors = torch.cat(by_sequence)
        figures = self._matching_figures(descriptors.split([len(part) for part in by_sequence]), seed)
        if self.retrieval is not None:
            queries, distractors = self.retrieval
            for name, values in retrieve_queries(descriptors, queries, distractors).items():
                figures.append(self._figure(f"retrieval mAP ({name})", values, queries.sequence, seed))
        if self.verification is None:
            return Scores(tuple(figures))
        verified = score_verification(self.verification, descriptors, seed)
        return Scores((*figures, *verified.figures), verified.curves, verified.histogram)

    def _matching_figures(self, by_sequence: Sequence[Tensor], seed: int) -> list[Figure]:
        matched = [match_sequence(descriptors) for descriptors in by_sequence]
        sequence_of_pair = np.repeat(np.arange(len(matched)), IMAGES)
        figures = []
        for protocol in AP_PROTOCOLS:
            values = np.concatenate([one[protocol] for one in matched])
            name = f"matching mAP ({protocol})"
            figures.append(self._figure(name, values, sequence_of_pair, seed))
        return figures

    def _figure(self, name: str, values: Floats, sequence: NDArray[np.int64], seed: int) -> Figure:
        """Return the mean of values (U, 3) of units in sequences (U,); parts are noise levels, kinds and sequences."""

        def mean(some: Floats, of: NDArray[np.bool_] | slice = slice(None)) -> Estimate:
            return bootstrap_mean(some[of], seed, clusters=sequence[of])

        mean_over_noise = values.mean(axis=1)
        parts = {noise: mean(values[:, level]) for level, noise in enumerate(NOISE)}
        names = np.array(self.sequences)[sequence]
        for prefix, kind in KINDS.items():
            of_kind = np.char.startswith(names, prefix)
            if of_kind.any():
                parts[kind] = mean(mean_over_noise, of_kind)
        for number in np.unique(sequence):
            parts[self.sequences[number]] = mean(mean_over_noise, sequence == number)
        return Figure(name, "higher", "sequences", mean(mean_over_noise), parts)


def _describe(candidate: Candidate, groups: NDArray[np.uint8]) -> Tensor:
    """Describe (N, 16, 65, 65) patches as (N, 16, D) or (N, 16, D/8)."""
    descriptors = candidate.describe_patches(groups.reshape(-1, SIDE, SIDE))
    return descriptors.view(*groups.shape[:2], -1)


def _check_sequences(release: HPatches, sequences: Sequence[str], root: Path, split: str) -> None:
    missing = sorted(set(sequences) - set(release.sequences))
    if missing:
        raise DataError(
            f"{root}: {len(missing)} of the {len(sequences)} test sequences of split {split} are missing, for example "
            f"{', '.join(missing[:3])}. Download them or choose another split."
        )


def _has_files(tasks: Path, kinds: Sequence[str], split: str) -> bool:
    return any(task_file(tasks, kind, split).is_file() for kind in kinds)


def _open_retrieval(tasks: Path, split: str, locate: Locate) -> tuple[TaskPatches, TaskPatches] | None:
    """Read the queries and the distractors; None if there are no files."""
    if not _has_files(tasks, RETRIEVAL, split):
        return None
    queries, distractors = (task_file(tasks, kind, split) for kind in RETRIEVAL)
    return locate(read_patch_list(queries), queries), locate(read_patch_list(distractors), distractors)


def _open_verification(tasks: Path, split: str, locate: Locate, sequences: int) -> Verification | None:
    """Read the pairs; None if there are no files."""
    if not _has_files(tasks, VERIFICATION, split):
        return None
    files = [task_file(tasks, kind, split) for kind in VERIFICATION]
    lists = [read_patch_pairs(file) for file in files]
    positive, intra, inter = (
        (locate(first, file), locate(second, file)) for file, (first, second) in zip(files, lists, strict=True)
    )
    fewest = min(len(intra[0].row), len(inter[0].row))
    if POSITIVES * fewest < 1:
        raise DataError(f"{tasks}: expected at least 5 negative pairs, got {fewest}. Download the task files again.")
    return Verification(positive, {"intra": intra, "inter": inter}, sequences)


def _locate(sequences: Sequence[str], sizes: Sequence[int], patches: PatchList, file: Path) -> TaskPatches:
    """Find the patches of a task file among the concatenated patches of all sequences."""
    index_of = {name: index for index, name in enumerate(sequences)}
    unknown = [name for name in patches.names if name not in index_of]
    if unknown:
        raise DataError(f"{file}: expected test sequences of the split, got {', '.join(unknown)}. Check the file.")
    sequence = np.array([index_of[name] for name in patches.names])[patches.sequence]
    beyond = np.flatnonzero(patches.index >= np.array(sizes)[sequence])
    if len(beyond):
        name, size = sequences[sequence[beyond[0]]], sizes[sequence[beyond[0]]]
        raise DataError(
            f"{file}: expected patches 0 to {size - 1} of {name}, got {patches.index[beyond[0]]}. "
            "Check that the release is complete."
        )
    first_row = np.cumsum(sizes) - sizes
    return TaskPatches(sequence, first_row[sequence] + patches.index, patches.image)


def _strip_files(root: Path, sequences: Sequence[str], progress: Progress) -> Iterator[Path]:
    for number, name in enumerate(sequences):
        progress(number, len(sequences), name)
        yield from (root / name / f"{strip}.png" for strip in STRIPS)


def _protocol(split: str, sequences: int, left_out: dict[str, str]) -> dict[str, Any]:
    return {
        "split": split,
        "sequences": sequences,
        "python": "trapezoid under precision-recall; retrieval from a pool of 20,000",
        "matlab": f"mean precision at positives; retrieval among the first {MATLAB_DISTRACTORS:,} distractors",
        "tie-aware": "mean precision at positives, ties expected; retrieval among all distractors",
        "verification": f"{POSITIVES:g} positives a negative; ties: python negatives first, matlab positives first",
        "retrieval": "distractors of other sequences; ties: python and matlab matches first",
        "matching": "nearest neighbour one way; ties: python and matlab first patch, order of the file",
        "resampled": "sequences",
        "left out": left_out,
    }
