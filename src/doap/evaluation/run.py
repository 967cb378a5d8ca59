"""Many descriptors on one benchmark, each a result on disk."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import doap
from doap.describer import Describer
from doap.errors import DoapError
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.result import Benchmark, DescriptorInfo, Result, write_result
from doap.files import sha256
from doap.types import Progress, no_progress

# What moves figures: OpenCV's versions differ in how they warp images and find keypoints.
_LIBRARIES = ("torch", "numpy", "opencv-contrib-python-headless", "pycolmap", "onnxruntime")


@dataclass(frozen=True)
class Evaluated:
    """What came of a run.

    Attributes:
        results: the files written, by the name of the descriptor.
        skipped: why there is none, by the name of the descriptor.
    """

    results: dict[str, Path]
    skipped: dict[str, str]


def evaluate(
    benchmark: Benchmark,
    describers: Mapping[str, Describer],
    out: str | Path,
    *,
    files: Mapping[str, Path] | None = None,
    memory: Path | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Evaluated:
    """Judge descriptors alike, one after the other, and write a result for each as soon as it is there.

    A descriptor that cannot do what the benchmark asks (one that needs the photo, where there are patches) is skipped
    with its reason, and the others go on.

    Args:
        benchmark: opened; see `BENCHMARKS`.
        describers: by name.
        out: a folder; results are `BENCHMARK-DATASET/NAME.json` in it.
        files: where a describer was read from, by name; its checksum is told in the result.
        memory: where to keep descriptors for the next time; None forgets them.
        seed: of all that is drawn.
        progress: told how many are done, of how many, and which is at hand.
    """
    folder = Path(out) / f"{benchmark.name}-{benchmark.dataset.name}"
    folder.mkdir(parents=True, exist_ok=True)
    results, skipped = {}, {}
    for index, (name, describer) in enumerate(describers.items()):
        progress(index, len(describers), name)
        begin = time.perf_counter()
        try:
            describing = CachedDescriber(describer, memory)
            judged = benchmark.judge(describing, seed)
        except DoapError as error:
            skipped[name] = str(error)
            continue
        seconds = time.perf_counter() - begin
        file = (files or {}).get(name)
        result = Result(
            benchmark=benchmark.name,
            protocol=benchmark.protocol,
            dataset=benchmark.dataset,
            descriptor=descriptor_info(name, describing, file),
            figures=judged.figures,
            curves=judged.curves,
            histogram=judged.histogram,
            seed=seed,
            date=datetime.date.today().isoformat(),
            seconds={"describe": describing.seconds, "judge": seconds - describing.seconds},
            versions=versions(),
        )
        results[name] = write_result(result, folder / f"{name}.json", judged.gallery)
    progress(len(describers), len(describers), "done")
    return Evaluated(results, skipped)


def descriptor_info(name: str, describing: CachedDescriber, file: Path | None) -> DescriptorInfo:
    """Which descriptor it was; `file` is where it was read from, if it was."""
    describer = describing.describer
    return DescriptorInfo(
        name=name,
        kind=describer.kind,
        dim=describer.dim,
        bytes=describer.dim // 8 if describer.kind == "binary" else 4 * describer.dim,
        fingerprint=describing.fingerprint,
        file_sha256=sha256(file) if file else None,
    )


def versions() -> dict[str, str]:
    """Of what moves figures, as far as it is installed."""
    found = {"doap": doap.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
