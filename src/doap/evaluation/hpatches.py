"""HPatches, the release of patches: verification, matching and retrieval, each in three forms.

    tie-aware   AP with ties by their expectation; 20,000 distractors
    python      as the Python program of the benchmark has it: the area under straight lines between the points of the
                precision-recall curve; 20,000 distractors
    matlab      as its MATLAB program has it: the mean of the precision at each positive; the first 2,000 distractors

    verification   positive pairs against negative ones of the same sequence (`intra`) or of another (`inter`): all
                   negatives, and a fifth as many positives, the first. Mean over three levels of noise × intra, inter.
                   Of pairs that tie `python` has the negatives first and `matlab` the positives
    matching       each reference patch and its nearest among those of another image of the sequence; right if it is the
                   same patch. AP by distance, where all count as positives, found or not. Mean over sequences, images
                   and noise. Of patches that tie for nearest `python` and `matlab` have the first, of answers that tie
                   the order of the file; `tie-aware` guesses
    retrieval      each query, the five patches of other images that match it, and distractors of other sequences. Mean
                   over queries and noise. Of items that tie `python` and `matlab` have the matches first: equal
                   descriptors score 1

On one ranking `python` is never more than `matlab`, for a straight line from the point before a positive lies below the
step; in retrieval it has more distractors besides. So it is the lower of the two everywhere.

What public tables leave open: MATLAB's note says that the article used all distractors, not its default of 2,000. The
newer Python program draws the mean over seven sizes of the pool (matches and distractors: 100 to 20,000), which is
`retrieval mAP (python, mean of pools)` here; the older one printed each. It also draws matching as the mean of the
sequences in light and those in viewpoint, and both are parts here; the older one printed the mean of all.

Intervals are over sequences for verification, whose pairs show each patch twenty times and are not independent; over
pairs of images for matching, and over queries for retrieval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.checks import check_choice
from doap.data.readers import HPatches, PatchList, read_hpatches, read_retrieval, read_splits, read_verification
from doap.data.readers.files import image_size
from doap.data.readers.hpatches import SIDE, STRIPS
from doap.data.readers.hpatches_tasks import RETRIEVAL, VERIFICATION, task_file
from doap.errors import DataError
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.checksum import checksum
from doap.evaluation.hpatches_pairs import IMAGES, NOISE, POSITIVES, Patches, Verification, score_verification
from doap.evaluation.result import Dataset, Figure, Scores
from doap.evaluation.retrieval import AREA, FORMS, APProtocol, precision_among
from doap.functional.distance import table_distances
from doap.functional.metrics import average_precision_at_ranks, average_precision_of_chances
from doap.functional.pairs import rows_at_a_time
from doap.types import Progress, no_progress

KINDS = {"i_": "illumination", "v_": "viewpoint"}
POOLS = (100, 500, 1000, 5000, 10_000, 15_000, 20_000)
MATLAB_DISTRACTORS = 2000

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HPatchesBenchmark:
    """The test sequences of a split and their tasks, ready to judge on; see `open_hpatches`.

    Pixels are read when they are described: those of a split are 4 GB.
    """

    dataset: Dataset
    protocol: dict[str, Any]
    release: HPatches
    sequences: tuple[str, ...]
    retrieval: tuple[Patches, Patches] | None
    verification: Verification | None
    name: str = "hpatches"

    def judge(self, describe: CachedDescriber, seed: int) -> Scores:
        """All tasks at hand, each in its three forms; matching, which needs no files, is the first figure."""
        parts = [_describe(describe, self.release.load(sequence)) for sequence in self.sequences]
        described = torch.cat(parts)
        matched = [match_precision(part) for part in described.split([len(part) for part in parts])]
        of_pair = np.repeat(np.arange(len(matched)), IMAGES)
        figures = []
        for form in FORMS:
            values = np.concatenate([one[form] for one in matched])
            figures.append(self._figure(f"matching mAP ({form})", "pairs of images", values, of_pair, seed))
        if self.retrieval is not None:
            of_query = self.retrieval[0].sequence
            for name, values in retrieve_queries(described, *self.retrieval).items():
                figures.append(self._figure(f"retrieval mAP ({name})", "queries", values, of_query, seed))
        verified = Scores(()) if self.verification is None else score_verification(self.verification, described, seed)
        return Scores((*figures, *verified.figures), verified.curves, verified.histogram)

    def _figure(self, name: str, unit: str, values: Floats, sequence: NDArray[np.int64], seed: int) -> Figure:
        """The mean of values (U, 3), and by level of noise, by kind of sequence and by sequence (U,)."""
        of_unit = values.mean(axis=1)
        parts = {noise: bootstrap_mean(values[:, level], seed) for level, noise in enumerate(NOISE)}
        for start, kind in KINDS.items():
            here = np.char.startswith(np.array(self.sequences)[sequence], start)
            if here.any():
                parts[kind] = bootstrap_mean(of_unit[here], seed)
        for number in np.unique(sequence):
            parts[self.sequences[number]] = bootstrap_mean(of_unit[sequence == number], seed)
        return Figure(name, "higher", unit, bootstrap_mean(of_unit, seed), parts)


def open_hpatches(
    root: str | Path, *, split: str = "a", tasks: str | Path | None = None, progress: Progress = no_progress
) -> HPatchesBenchmark:
    """Open HPatches as a benchmark.

    Args:
        root: the release of patches, a folder of sequences.
        split: `a`, `b`, `c`, `illum`, `view` or `full`; its test sequences are judged on.
        tasks: the folder of the task files; if not given, `tasks` in the root. Without files of a task for this split
            the task is left out, and the protocol says so; splits.json is needed always.
        progress: told which sequence is being looked at.
    """
    root = Path(root)
    tasks = root / "tasks" if tasks is None else Path(tasks)
    splits = read_splits(tasks)
    check_choice(split, tuple(splits), name="split")
    release, sequences = read_hpatches(root), splits[split].test
    missing = sorted(set(sequences) - set(release.sequences))
    if missing:
        some = ", ".join(missing[:3])
        rule = f"expected the {len(sequences)} test sequences of split {split}"
        raise DataError(
            f"{root}: {rule}, got {len(missing)} missing, such as {some}; fetch them or choose another split"
        )
    files = {kind: task_file(tasks, kind, split) for kind in (*RETRIEVAL, *VERIFICATION)}
    locate = partial(_locate, sequences, [image_size(root / name / "ref.png")[0] // SIDE for name in sequences])
    retrieval = verification = None
    left_out, used = {}, []
    if any(files[kind].is_file() for kind in RETRIEVAL):
        found = read_retrieval(tasks, split)
        retrieval = locate(found.queries, files["retr_queries"]), locate(found.distractors, files["retr_distractors"])
        used += [files[kind] for kind in RETRIEVAL]
    else:
        left_out["retrieval"] = f"no retr_*_split-{split}.csv"
    if any(files[kind].is_file() for kind in VERIFICATION):
        lists = read_verification(tasks, split)
        three = zip(VERIFICATION, (lists.positive, lists.negative_intra, lists.negative_inter), strict=True)
        positive, *negative = [(locate(a, files[kind]), locate(b, files[kind])) for kind, (a, b) in three]
        if POSITIVES * min(len(first.row) for first, _ in negative) < 1:
            raise DataError(f"{tasks}: expected 5 negative pairs or more, got fewer; fetch the task files again")
        verification = Verification(positive, dict(zip(("intra", "inter"), negative, strict=True)), len(sequences))
        used += [files[kind] for kind in VERIFICATION]
    else:
        left_out["verification"] = f"no verif_*_split-{split}.csv"

    def read_files() -> Iterator[Path]:
        yield from used
        for number, name in enumerate(sequences):
            progress(number, len(sequences), name)
            yield from (root / name / f"{strip}.png" for strip in STRIPS)

    dataset = Dataset(f"{root.resolve().name}-{split}", checksum(read_files()))
    protocol = {
        "split": split,
        "sequences": len(sequences),
        "python": "trapezoid under precision-recall; retrieval from a pool of 20,000 and the mean of seven pools",
        "matlab": f"mean precision at positives; retrieval among the first {MATLAB_DISTRACTORS:,} distractors",
        "tie-aware": "mean precision at positives, ties expected; retrieval among all distractors",
        "verification": f"{POSITIVES:g} positives a negative; ties: python negatives first, matlab positives first",
        "retrieval": "distractors of other sequences; ties: python and matlab matches first",
        "matching": "nearest neighbour one way; ties: python and matlab first patch, order of the file",
        "left out": left_out,
    }
    return HPatchesBenchmark(dataset, protocol, release, sequences, retrieval, verification)


def match_precision(described: Tensor) -> dict[APProtocol, Floats]:
    """Matching in a sequence: AP (5, 3), of five images at three levels of noise, in each form.

    Args:
        described: (N, 16, D), or (N, 16, D/8) uint8, in the order of the strips.
    """
    found = [_match(described[:, 0], described[:, strip]) for strip in range(1, len(STRIPS))]
    return {form: np.array([one[form] for one in found]).reshape(len(NOISE), IMAGES).T for form in FORMS}


def retrieve_queries(described: Tensor, queries: Patches, distractors: Patches) -> dict[str, Floats]:
    """Retrieval: AP (Q, 3) of each query at three levels of noise, in each form.

    Args:
        described: (R, 16, D), or (R, 16, D/8) uint8, of all sequences.
        queries: Q patches.
        distractors: of which those of the query's own sequence are left out.
    """
    precision = np.empty((len(queries.row), len(NOISE), 2 + len(POOLS)))
    for sequence in np.unique(queries.sequence):
        asking, elsewhere = queries.sequence == sequence, distractors.sequence != sequence
        number = int(elsewhere.sum())
        ways: list[tuple[APProtocol, int]] = [
            ("tie-aware", number),
            ("matlab", int(elsewhere[:MATLAB_DISTRACTORS].sum())),
        ]
        # A pool of the program holds the matches too.
        ways += [("python", min(pool - IMAGES, number)) for pool in POOLS]
        rows = described[torch.from_numpy(queries.row[asking])]
        strangers = described[torch.from_numpy(distractors.row[elsewhere]), 0]
        matches = rows[:, 1:].unflatten(1, (len(NOISE), IMAGES))
        precision[asking] = precision_among(rows[:, 0], matches, strangers, ways).numpy()
    return {
        "tie-aware": precision[..., 0],
        "python": precision[..., -1],
        "matlab": precision[..., 1],
        "python, mean of pools": precision[..., 2:].mean(axis=2),
    }


def _match(reference: Tensor, target: Tensor) -> dict[APProtocol, float]:
    """AP of matching (N, D) with (N, D), of which equal rows are the same patch."""
    least, chance, right = [], [], []
    for rows in torch.arange(len(reference)).split(rows_at_a_time(target)):
        table = table_distances(reference[rows], target).numpy()
        nearest = table.min(axis=1)
        own = table[np.arange(len(rows)), rows.numpy()]
        tied = (table == nearest[:, None]).sum(axis=1)
        least.append(nearest)
        chance.append((own == nearest) / tied)
        # Of equal distances, numpy's is the first.
        right.append(table.argmin(axis=1) == rows.numpy())
    distances, number = np.concatenate(least), len(reference)
    ranks = torch.from_numpy(np.flatnonzero(np.concatenate(right)[np.argsort(distances, kind="stable")]) + 1)
    guessed = torch.from_numpy(distances), torch.from_numpy(np.concatenate(chance))
    settled = {form: float(average_precision_at_ranks(ranks, number, area)) for form, area in AREA.items()}
    return {"tie-aware": average_precision_of_chances(*guessed, number=number), **settled}


def _describe(describe: CachedDescriber, groups: NDArray[np.uint8]) -> Tensor:
    """(N, 16, 65, 65) → (N, 16, D) or (N, 16, D/8)."""
    described = describe.patches(groups.reshape(-1, SIDE, SIDE))
    return described.view(*groups.shape[:2], -1)


def _locate(sequences: Sequence[str], sizes: Sequence[int], patches: PatchList, file: Path) -> Patches:
    """Where the patches of a task file are among those of all sequences, one behind the other."""
    places = {name: place for place, name in enumerate(sequences)}
    foreign = [name for name in patches.names if name not in places]
    if foreign:
        raise DataError(f"{file}: expected test sequences of the split, got {', '.join(foreign)}; is it of this split?")
    sequence = np.array([places[name] for name in patches.names])[patches.sequence]
    beyond = patches.index >= np.array(sizes)[sequence]
    if beyond.any():
        first = int(np.flatnonzero(beyond)[0])
        name, size = sequences[sequence[first]], sizes[sequence[first]]
        raise DataError(
            f"{file}: expected patches 0 to {size - 1} of {name}, got {patches.index[first]}; is it complete?"
        )
    start = np.cumsum(sizes) - sizes
    return Patches(sequence, start[sequence] + patches.index, patches.image)
