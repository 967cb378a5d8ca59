"""Evaluate descriptors on a benchmark and store one result for each."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import doap
from doap._support.errors import ArgumentError, DoapError
from doap._support.files import OutputLock, make_folder, sha256
from doap._support.opencv import loaded_wheel
from doap._support.plugins import registered
from doap.evaluation.benchmark import Benchmark, BenchmarkType
from doap.evaluation.candidates import Candidate, open_candidates
from doap.evaluation.hpatches import HPatchesBenchmark
from doap.evaluation.oxford import OxfordBenchmark
from doap.evaluation.patches import PatchesBenchmark
from doap.evaluation.phototour import PhotoTourBenchmark
from doap.evaluation.pose import PoseBenchmark
from doap.evaluation.result import DescriptorInfo, Result, read_results, write_results
from doap.evaluation.romepatches import RomePatchesBenchmark
from doap.evaluation.sfm import SfmBenchmark
from doap.evaluation.speed import SpeedBenchmark
from doap.evaluation.wxbs import WxbsBenchmark
from doap.extractor import DescriptorSource
from doap.types import Progress, no_progress

BENCHMARKS: dict[str, BenchmarkType] = {
    "oxford": OxfordBenchmark,
    "phototour": PhotoTourBenchmark,
    "hpatches": HPatchesBenchmark,
    "romepatches": RomePatchesBenchmark,
    "patches": PatchesBenchmark,
    "pose": PoseBenchmark,
    "speed": SpeedBenchmark,
    "sfm": SfmBenchmark,
    "wxbs": WxbsBenchmark,
}
"""Benchmarks by name; `BENCHMARKS[name](root, **settings)` opens one."""

# Libraries whose version affects the figures: OpenCV, for example, changed its warping and keypoint detection.
_LIBRARIES = ("torch", "numpy", "pycolmap", "onnxruntime")


@dataclass(frozen=True)
class Evaluation:
    """Results of descriptors on one benchmark.

    Attributes:
        results: Result by descriptor name.
        file: JSON file of the results, which may also have those of earlier runs.
        skipped: Reason why a descriptor has no result, by name.
    """

    results: dict[str, Result]
    file: Path
    skipped: dict[str, str]


def evaluate(
    descriptors: DescriptorSource | Sequence[DescriptorSource] | Mapping[str, DescriptorSource],
    benchmark: str | Benchmark,
    root: str | Path | None,
    out: str | Path,
    *,
    settings: Mapping[str, object] | None = None,
    resume: bool = False,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> Evaluation:
    """Evaluate descriptors on a benchmark under the same conditions, and store one result for each.

    A descriptor that cannot work with what the benchmark `needs` is skipped with the reason.

    >>> import tempfile
    >>> photos = Path(doap.__file__).parent / "images" / "samples"
    >>> small = {"photos": 2, "repeats": 1, "max_keypoints": 50}
    >>> with tempfile.TemporaryDirectory() as out:
    ...     evaluation = evaluate(["rootsift"], "speed", photos, out, settings=small)
    >>> evaluation.results["rootsift"].headline.name
    'ms per 1,000 keypoints'

    Args:
        descriptors: Names, files or describers; see `open_candidates`. Descriptors that are loaded here run in
            float32, so that figures do not depend on the hardware.
        benchmark: Name in `BENCHMARKS`, or an opened benchmark.
        root: Data of the benchmark; None for an opened benchmark.
        out: Folder of the results; they are stored as `BENCHMARK-DATASET.json`. Results of other descriptors in this
            file are kept, and other processes may add some at the same time.
        settings: Settings of the benchmark by name, as values or as strings.
        resume: Keep a stored result if it has the same benchmark, protocol, data, descriptor, seed and library
            versions.
        seed: Seed of the bootstrap.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Progress callback.
    """
    candidates = open_candidates(descriptors, device=device, precision="float32")
    opened = _open(benchmark, root, settings, progress)
    file = make_folder(Path(out)) / f"{opened.name}-{opened.dataset.name}.json"
    results: dict[str, Result] = {}
    skipped: dict[str, str] = {}
    stored = _add(file)
    for index, (name, one) in enumerate(candidates.items()):
        progress(index, len(candidates), name)
        try:
            one.check(opened.needs, getattr(opened, "detector", None))
            conditions = _conditions(opened, descriptor_info(name, one), seed)
            kept = stored.get(name) if resume else None
            if kept is None or not _is_same(kept, conditions):
                kept = _evaluate_one(one, opened, conditions)
                _add(file, kept)
        except DoapError as error:
            skipped[name] = str(error)
            continue
        results[name] = kept
    progress(len(candidates), len(candidates), "done")
    return Evaluation(results, file, skipped)


def open_benchmark(
    name: str,
    root: str | Path,
    settings: Mapping[str, object] | None = None,
    progress: Progress = no_progress,
) -> Benchmark:
    """Open a benchmark by its name in `BENCHMARKS`, or by that of an installed package.

    Args:
        name: Name of the benchmark.
        root: Its data.
        settings: Settings by name, as values or as strings; see the `Settings` of the benchmark.
        progress: Progress callback.
    """
    given = dict(settings or {})
    if "progress" in given:
        raise ArgumentError("settings: progress is an argument of open_benchmark, not a setting.")
    return registered(BENCHMARKS, "benchmark", name)(root, progress=progress, **given)


def descriptor_info(name: str, one: Candidate) -> DescriptorInfo:
    """Return the identity of a descriptor."""
    return DescriptorInfo(
        name=name,
        kind=one.kind,
        dim=one.dim,
        bytes=one.dim // 8 if one.kind == "binary" else 4 * one.dim,
        fingerprint=one.fingerprint(),
        file_sha256=sha256(one.file) if one.file else None,
        pipeline=one.extractor is not None and one.matcher is not None,
    )


def library_versions() -> dict[str, str]:
    """Return the versions of the installed libraries that affect the figures."""
    found = {"doap": doap.__version__, "python": platform.python_version()}
    for name in (*_LIBRARIES, loaded_wheel()):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def source_commit() -> str | None:
    """Return the commit of the source code, followed by `-dirty` if it was changed; None outside its repository."""
    folder = Path(doap.__file__).parent
    try:
        # An installation inside the repository of another project is not tracked there.
        _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        return _git(folder, "rev-parse", "HEAD") + ("-dirty" if _git(folder, "status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    """Return the output of a command of git."""
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def _open(
    benchmark: str | Benchmark, root: str | Path | None, settings: Mapping[str, object] | None, progress: Progress
) -> Benchmark:
    if isinstance(benchmark, str):
        if root is None:
            raise ArgumentError(f"root: expected the data of the benchmark {benchmark}, got None.")
        return open_benchmark(benchmark, root, settings, progress)
    if root is not None or settings:
        raise ArgumentError(f"root and settings: expected None, because {benchmark.name} is already opened.")
    return benchmark


def _add(file: Path, *results: Result) -> dict[str, Result]:
    """Add results to a file, to which other processes may add some at the same time, and return all of its results."""
    with OutputLock(file, wait=True):
        stored = read_results(file) if file.exists() else {}
        if results:
            stored |= {one.descriptor.name: one for one in results}
            write_results(stored.values(), file)
        return stored


def _conditions(benchmark: Benchmark, descriptor: DescriptorInfo, seed: int) -> dict[str, Any]:
    """Return the fields of a result that are known before the evaluation and determine its figures."""
    return {
        "benchmark": benchmark.name,
        "protocol": benchmark.protocol,
        "dataset": benchmark.dataset,
        "descriptor": descriptor,
        "seed": seed,
        "versions": library_versions(),
    }


def _is_same(stored: Result, conditions: Mapping[str, Any]) -> bool:
    """Return whether a stored result was measured under these conditions."""
    # JSON stores tuples as lists.
    protocol = json.loads(json.dumps(conditions["protocol"]))
    expected = {**conditions, "protocol": protocol}
    return all(getattr(stored, name) == value for name, value in expected.items())


def _evaluate_one(candidate: Candidate, benchmark: Benchmark, conditions: Mapping[str, Any]) -> Result:
    """Evaluate a descriptor."""
    begin = time.perf_counter()
    scores = benchmark.evaluate(candidate, conditions["seed"])
    seconds = time.perf_counter() - begin
    return Result(
        **conditions,
        figures=scores.figures,
        curves=scores.curves,
        histogram=scores.histogram,
        date=datetime.date.today().isoformat(),
        seconds={"describe": candidate.seconds, "score": seconds - candidate.seconds},
        selected=scores.selected,
        commit=source_commit(),
    )
