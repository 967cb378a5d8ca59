"""Candidates: the descriptors and pipelines to evaluate, opened by name, with a timer.

Three of them are controls, which must score at chance level. A control that does better exposes a bug in a benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from doap._support.checks import check_finite, check_shape
from doap._support.device import Precision
from doap._support.errors import ArgumentError
from doap._support.random_streams import stream
from doap.baselines import BASELINES, PIPELINES, rootsift
from doap.describer import Describer, FunctionDescriber, PatchDescriber, from_function
from doap.descriptor import SHIPPED, load
from doap.detectors import Detector, sift
from doap.extractor import DescriptorSource, Extractor, KeypointExtractor
from doap.images import Pyramid
from doap.matching import AdaLAM, Matcher, NearestNeighbours
from doap.pipeline import describe_patches
from doap.types import Features, Kind

T = TypeVar("T")

Needs = Literal["patches", "frames", "images"]
"""What a benchmark gives to a descriptor: patches, an image with the frames of its keypoints, or whole images."""

CONTROL_DIM = 128


def constant() -> FunctionDescriber:
    """Return a control that describes every patch alike, so that all distances tie."""
    return from_function(lambda patches: torch.full((len(patches), CONTROL_DIM), CONTROL_DIM**-0.5), name="constant")


def random() -> FunctionDescriber:
    """Return a control whose descriptors are random unit vectors."""

    def describe(patches: Tensor) -> Tensor:
        vectors = _generator(patches).standard_normal((len(patches), CONTROL_DIM), np.float32)
        return normalize(torch.from_numpy(vectors))

    return from_function(describe, name="random")


def shuffled(describer: PatchDescriber | None = None) -> FunctionDescriber:
    """Return a control that assigns real descriptors, by default RootSIFT's, to the wrong patches."""
    real = describer or rootsift()

    def describe(patches: Tensor) -> Tensor:
        order = _generator(patches).permutation(len(patches))
        return real.describe_patches(patches)[torch.from_numpy(order)]

    return from_function(describe, patch_size=real.patch_size, name="shuffled")


def _generator(patches: Tensor) -> np.random.Generator:
    """Return a generator seeded by the patches, so that two images do not get the same random numbers."""
    return stream(int(patches.double().sum() * 1000) % 2**32, "control")


CONTROLS: dict[str, Callable[[], FunctionDescriber]] = {"constant": constant, "random": random, "shuffled": shuffled}
"""Descriptors that must score at chance level, by name."""

ADALAM = "+adalam"
"""Ending of the names of descriptors whose matches are filtered with AdaLAM."""

GROUPS: dict[str, Iterable[str]] = {"baselines": BASELINES, "pipelines": PIPELINES, "controls": CONTROLS}
"""Words that stand for several descriptors."""


@dataclass
class Candidate:
    """An opened descriptor or pipeline: what it can do, and how long it took.

    Attributes:
        name: Name in messages.
        kind, dim: As for `Describer`.
        describer: Describes given keypoints.
        patch_describer: Describes patches.
        extractor: Detects its own keypoints; None to describe those of any detector.
        matcher: Has a matcher of its own; None for nearest neighbours.
        compute_natively: Describes the keypoints of an image as OpenCV's users do, for timing.
        file: File that it was loaded from.
        seconds: Time spent in `describe_patches`, `describe` and `extract` so far.
    """

    name: str
    kind: Kind
    dim: int
    describer: Describer | None = None
    patch_describer: PatchDescriber | None = None
    extractor: Extractor | None = None
    matcher: Matcher | None = None
    compute_natively: Callable[[NDArray[np.uint8], Sequence[Any]], NDArray[Any]] | None = None
    file: Path | None = None
    seconds: float = field(default=0.0, init=False)

    def fingerprint(self) -> str:
        """Return the checksum of everything that changes the descriptors."""
        if self.extractor is not None:
            return self.extractor.fingerprint()
        assert self.describer is not None
        return KeypointExtractor(self.describer, sift()).fingerprint()

    def check(self, needs: Needs, detector: Detector | None = None) -> None:
        """Check that the candidate can work with what a benchmark needs; `detector` is that of its frames."""
        if needs == "patches" and self.patch_describer is None:
            raise ArgumentError(
                f"{self.name}: expected a descriptor of patches, got one that needs the image. Evaluate it on images."
            )
        own = None if self.extractor is None else self.extractor.detector
        if needs == "frames" and (self.describer is None or own not in (None, detector)):
            remedy = f"Use the detector {own.name}." if own and self.describer else "Evaluate it on pairs of images."
            raise ArgumentError(
                f"{self.name}: expected a descriptor of given keypoints, got one that only describes its own. {remedy}"
            )

    def describe_patches(self, patches: NDArray[np.uint8]) -> Tensor:
        """Describe patches (N, S, S) of any size as (N, D) float32 or (N, D/8) uint8, on the CPU."""
        check_shape(patches, "N S S", name="patches")
        describer = self.patch_describer
        assert describer is not None
        return _checked(self._timed(lambda: describe_patches(describer, patches).cpu()))

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image, with the output of `describe_patches`."""
        describer = self.describer
        assert describer is not None
        return _checked(self._timed(lambda: describer.describe(image, frames).cpu()))

    def extract(self, image: NDArray[np.uint8], max_keypoints: int) -> Features:
        """Extract the features of a grey image (H, W) with the candidate's own detector."""
        extractor = self.extractor
        assert extractor is not None
        found = self._timed(lambda: extract_whole(extractor, image, max_keypoints))
        return replace(found, descriptors=_checked(found.descriptors.cpu()))

    def _timed(self, run: Callable[[], T]) -> T:
        begin = time.perf_counter()
        output = run()
        self.seconds += time.perf_counter() - begin
        return output


def extract_whole(extractor: Extractor, image: NDArray[np.uint8], max_keypoints: int) -> Features:
    """Extract the features of a grey image (H, W) of any size, without downscaling it and without a fingerprint."""
    prepared = extractor.prepare(image, max_keypoints=max_keypoints, max_image_size=max(image.shape))
    return extractor.finish([prepared])[0]


def _checked(descriptors: Tensor) -> Tensor:
    check_finite(descriptors, name="descriptors")
    return descriptors


def open_candidate(descriptor: Describer | Extractor, file: Path | None = None) -> Candidate:
    """Find out what a descriptor or pipeline can do; `file` is the file it was loaded from, if any."""
    name = str(getattr(descriptor, "name", type(descriptor).__name__.lower()))
    if isinstance(descriptor, Extractor):
        own, matcher = descriptor.describer, descriptor.matcher
        return Candidate(name, descriptor.kind, descriptor.dim, own, None, descriptor, matcher, file=file)
    patches = descriptor if isinstance(descriptor, PatchDescriber) else None
    native = getattr(descriptor, "compute_natively", None)
    return Candidate(name, descriptor.kind, descriptor.dim, descriptor, patches, compute_natively=native, file=file)


def open_candidates(
    descriptors: DescriptorSource | Sequence[DescriptorSource] | Mapping[str, DescriptorSource],
    *,
    device: str | torch.device = "auto",
    precision: Precision = "auto",
) -> dict[str, Candidate]:
    """Load descriptors, by short and unique names.

    >>> list(open_candidates(["rootsift", "controls"]))
    ['rootsift', 'constant', 'random', 'shuffled']

    Args:
        descriptors: One descriptor, several, or a mapping from the names to use to descriptors. A descriptor is
            anything that `doap.load` accepts, the name of a control, a describer, or an extractor. In a sequence, the
            word `baselines` stands for all baselines in `BASELINES`, `pipelines` for all learned pipelines in
            `PIPELINES`, and `controls` for all controls in `CONTROLS`. The ending `+adalam` of a name filters the
            matches with AdaLAM instead of a ratio test.
        device: Device of the networks; see `doap.load`.
        precision: Precision of the networks; see `doap.load`.

    Returns:
        Candidates by name. A file is named by its stem, a function by its own name; later ones of the same name get
        the suffix -2, -3, ….
    """
    if isinstance(descriptors, Mapping):
        return {name: _open(source, device, precision)[1] for name, source in descriptors.items()}
    sources = [descriptors] if isinstance(descriptors, str | Path | Describer | Extractor) else descriptors
    candidates: dict[str, Candidate] = {}
    for source in _expand(sources):
        name, candidate = _open(source, device, precision)
        numbered = chain([name], (f"{name}-{number}" for number in count(2)))
        candidates[next(one for one in numbered if one not in candidates)] = candidate
    return candidates


def _expand(sources: Sequence[DescriptorSource]) -> Iterator[DescriptorSource]:
    """Replace group words by their members and drop repeated names and files."""
    known: set[str] = set()
    for source in sources:
        if not isinstance(source, str | Path):
            yield source
            continue
        for name in GROUPS.get(str(source), [str(source)]):
            if name not in known:
                known.add(name)
                yield name


def _open(source: DescriptorSource, device: str | torch.device, precision: Precision) -> tuple[str, Candidate]:
    """Return the short name of a descriptor and the opened one."""
    if not isinstance(source, str | Path):
        candidate = open_candidate(source)
        return candidate.name, candidate
    plain, plus, _ = str(source).partition(ADALAM)
    if plus:
        name, candidate = _open(plain, device, precision)
        candidate.matcher = AdaLAM(NearestNeighbours())
        return name + ADALAM, candidate
    file, control = _file_of(source), CONTROLS.get(str(source))
    opened = control() if control else load(source, device=device, precision=precision)
    return file.stem if file else str(source).rpartition(":")[2], open_candidate(opened, file)


def _file_of(source: str | Path) -> Path | None:
    """Return the file that a descriptor is loaded from; None for baselines, pipelines, controls and functions."""
    if any(str(source) in names for names in GROUPS.values()):
        return None
    path = SHIPPED.get(str(source)) or Path(source)
    return path if path.is_file() else None
