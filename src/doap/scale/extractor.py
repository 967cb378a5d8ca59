"""What makes features, what it is known by, and the bytes its descriptors are stored as."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap.checks import check_choice
from doap.describer import Describer
from doap.detectors import Detector
from doap.errors import ArgumentError
from doap.pipeline import extract_sample
from doap.types import Kind

Stored = Literal["float16", "uint8", "bits"]
# The byte of the number 0, and steps from it to the largest of a row.
_ZERO, _STEPS = 128, 127


@dataclass(frozen=True)
class Extractor:
    """What made a set of features.

    Attributes:
        fingerprint: checksum of what detector and descriptor make of a fixed picture, and of the settings.
        descriptor: its name, or file.
        detector: its name.
        magnification: side of a patch over what the detector calls its size.
        max_keypoints: keypoints of an image.
        kind: `real` or `binary`.
        dim: D, numbers or bits.
        stored: what descriptors are written as.
    """

    fingerprint: str
    descriptor: str
    detector: str
    magnification: float
    max_keypoints: int
    kind: Kind
    dim: int
    stored: Stored


def extractor_of(
    descriptor: Describer,
    *,
    descriptor_name: str,
    detector: Detector,
    max_keypoints: int = 2048,
    stored: Stored | None = None,
) -> Extractor:
    """What `doap.extract` with these arguments is known by; an error if they do not go together.

    Args:
        descriptor, detector, most: as for `doap.extract`.
        descriptor_name: for whoever wants to make more of such features; it does not show in the fingerprint.
        stored: `float16` if not given, and `bits` for binary descriptors always.
    """
    stored = stored or ("bits" if descriptor.kind == "binary" else "float16")
    check_choice(stored, get_args(Stored), name="stored")
    if (stored == "bits") != (descriptor.kind == "binary"):
        raise ArgumentError(
            f"stored: expected bits for binary descriptors, float16 or uint8 for real ones, got {stored} "
            f"for {descriptor_name}, which is {descriptor.kind}"
        )
    if max_keypoints < 1:
        raise ArgumentError(f"most: expected 1 or more, got {max_keypoints}")
    seen = extract_sample(descriptor, detector)
    # Now, and not after the first thousand images.
    encode(seen.descriptors, stored)
    made = Extractor(
        fingerprint="",
        descriptor=descriptor_name,
        detector=detector.name,
        magnification=detector.magnification,
        max_keypoints=max_keypoints,
        kind=descriptor.kind,
        dim=descriptor.dim,
        stored=stored,
    )
    settings = dataclasses.asdict(made) | {"descriptor": ""}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(seen.frames.tobytes())
    digest.update(seen.descriptors.cpu().numpy().tobytes())
    return dataclasses.replace(made, fingerprint=digest.hexdigest())


def encode(descriptors: Tensor, stored: Stored) -> bytes:
    """Bytes of descriptors (N, D) float32 or (N, D/8) uint8, row by row.

    As uint8 a number is told as a share of the largest of its row, in 127 steps to either side: what the largest is
    need not be kept, for rows have unit length. COLMAP's bytes (`doap.functional.quantise`) are another thing: they are
    to be compared as they are, and what they cut off and round does not come back.
    """
    rows = descriptors.cpu()
    if stored == "uint8":
        lengths = rows.norm(dim=1)
        if not bool(((lengths - 1).abs() < 1e-3).logical_or(lengths == 0).all()):
            raise ArgumentError("stored: expected float16 for descriptors without unit length, got uint8")
        largest = rows.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        rows = (rows / largest * _STEPS + _ZERO).round().to(torch.uint8)
    elif stored == "float16":
        rows = rows.half()
        if not bool(torch.isfinite(rows).all()):
            raise ArgumentError("descriptors: expected finite numbers up to 65,504, as float16 has them, got others")
    return rows.numpy().tobytes()


def decode(content: bytes, dim: int, stored: Stored) -> Tensor:
    """Undo `encode`: (N, D) float32 or, for bits, (N, D/8) uint8.

    float16 comes back to within 0.05 % of each number. Rows of uint8 have unit length again, and are less than
    2·√D/254 of their largest number away from what they were; zeros stay zeros.
    """
    width = dim // 8 if stored == "bits" else dim
    numbers = np.float16 if stored == "float16" else np.uint8
    # A copy, for torch wants to be allowed to write.
    rows = torch.from_numpy(np.frombuffer(content, numbers).reshape(-1, width).copy())
    if stored == "bits":
        return rows
    return normalize(rows.float() - _ZERO) if stored == "uint8" else rows.float()
