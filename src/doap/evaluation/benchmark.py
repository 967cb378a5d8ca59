"""The interface of a benchmark and the base class of its settings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import PlainValidator, ValidationError

from doap._support.errors import ArgumentError, DoapError
from doap._support.files import sha256
from doap._support.settings import StrictModel, explain
from doap.detectors import Detector, as_detector
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.result import Dataset, Scores
from doap.types import Progress, no_progress

S = TypeVar("S", bound="BenchmarkSettings")

DetectorSetting = Annotated[Detector, PlainValidator(as_detector)]
"""A setting that accepts a detector or its name in `DETECTORS`."""


class Benchmark(Protocol):
    """An opened benchmark: its data and ground truth are read, and it can evaluate any number of descriptors."""

    @property
    def name(self) -> str:
        """Name in `BENCHMARKS`."""

    @property
    def needs(self) -> Needs:
        """What `evaluate` gives to a descriptor. A benchmark that needs frames has the attribute `detector`, too."""

    @property
    def dataset(self) -> Dataset:
        """Name and checksum of the data."""

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that affects the figures, by name, as JSON values."""

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Evaluate one descriptor; `seed` is the seed of the bootstrap."""


class BenchmarkSettings(StrictModel):
    """Base class of a benchmark's settings: the names, types, limits and defaults of its keyword arguments."""

    @classmethod
    def parse(cls: type[S], settings: Mapping[str, object]) -> S:
        """Validate settings given as values or as strings."""
        unknown = [name for name in settings if name not in cls.model_fields]
        if unknown:
            known = ", ".join(cls.model_fields) or "none"
            raise ArgumentError(f"settings: unknown setting {', '.join(unknown)}. Known settings: {known}.")
        try:
            return cls.model_validate(dict(settings))
        except ValidationError as error:
            cause = error.errors()[0].get("ctx", {}).get("error")
            if isinstance(cause, DoapError):
                raise cause from error
            raise ArgumentError(f"{explain(error, cls.model_fields)}.") from error


def dataset_of(root: str | Path, files: Iterable[Path], name: str = "") -> Dataset:
    """Return the dataset of these files in the given order; their names and folders do not matter.

    Its name is that of the root by default.
    """
    digest = hashlib.sha256("\n".join(map(sha256, files)).encode()).hexdigest()
    return Dataset(name or Path(root).resolve().name, digest)


class BenchmarkType(Protocol):
    """An entry of `BENCHMARKS`: a class that opens a benchmark and takes its settings as keyword arguments.

    The settings are described by a nested class `Settings`, a `BenchmarkSettings`.
    """

    def __call__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> Benchmark:
        """Open the benchmark whose data is at `root`."""
