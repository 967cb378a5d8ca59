"""FAISS: which of its indexes for how many descriptors, and what differs between real ones and bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from doap.checks import check_choice
from doap.errors import ArgumentError, DataError, import_extra
from doap.types import Kind

IndexKind = Literal["flat", "ivf", "ivf-pq"]
"""All descriptors compared; those of the nearest lists only; and those by codes of 16 bytes instead of themselves."""

# From the smallest to the largest collection: the kind, and up to how many descriptors.
LIMITS: dict[Kind, dict[IndexKind, float]] = {
    "real": {"flat": 100_000, "ivf": 2_000_000, "ivf-pq": math.inf},
    "binary": {"flat": 1_000_000, "ivf": math.inf},
}
CODE_BYTES = 16
SAMPLE_PER_LIST = 64
"""Descriptors that each list is trained on; FAISS warns below 39 and takes no more than 256."""
_FEWEST_PER_LIST = 39
# Each byte of a code has its own 256 centres, trained on the same sample.
_FEWEST_FOR_CODES, _SAMPLE_FOR_CODES = 256, 256 * 256
# FAISS would go 50 times from codes to rotation and back, and that is already the longest part of the training.
_ROTATION_ROUNDS = 20


@dataclass(frozen=True)
class IndexPlan:
    """What an index is to be.

    Attributes:
        kind: see `IndexKind`.
        lists: that the descriptors are sorted into; 0 for flat.
        probes: lists that are looked through for each query if nobody says otherwise.
        sample: descriptors to train on; 0 for flat.
        rule: why this kind, for people.
    """

    kind: IndexKind
    lists: int
    probes: int
    sample: int
    rule: str


def plan_index(count: int, descriptors: Kind, dim: int, kind: IndexKind | None = None) -> IndexPlan:
    """The kind of index for so many descriptors, unless it is given.

    There are 2·√N lists, and √lists of them are looked through: both halves of a search, finding the lists and looking
    through them, then grow slower than N. With twice as many lists, training takes four times as long, and their
    centres cost a code of 16 bytes two bytes more instead of one, at a million descriptors.

    >>> plan = plan_index(1_000_000, "real", 128)
    >>> plan.kind, plan.lists, plan.probes, plan.sample
    ('ivf', 2000, 45, 128000)
    >>> plan.rule
    '1,000,000 real descriptors: ivf, since flat is for up to 100,000, ivf for up to 2,000,000, ivf-pq for more'
    """
    limits = LIMITS[descriptors]
    if kind is not None:
        check_choice(kind, tuple(limits), name=f"kind of an index of {descriptors} descriptors")
        chosen, rule = kind, f"{count:,} {descriptors} descriptors: {kind}, as asked for"
    else:
        chosen = next(name for name, limit in limits.items() if count <= limit)
        told = (f"{name} for {'more' if limit == math.inf else f'up to {limit:,}'}" for name, limit in limits.items())
        rule = f"{count:,} {descriptors} descriptors: {chosen}, since {', '.join(told).replace(' for', ' is for', 1)}"
    if chosen == "flat":
        return IndexPlan(chosen, 0, 0, 0, rule)
    if chosen == "ivf-pq" and (count < _FEWEST_FOR_CODES or dim < CODE_BYTES):
        raise ArgumentError(
            f"kind: expected {_FEWEST_FOR_CODES} descriptors of {CODE_BYTES} numbers or more for ivf-pq, "
            f"got {count:,} of {dim}; choose flat"
        )
    lists = max(1, min(round(2 * math.sqrt(count)), count // _FEWEST_PER_LIST))
    wanted = max(SAMPLE_PER_LIST * lists, _SAMPLE_FOR_CODES if chosen == "ivf-pq" else 0)
    return IndexPlan(chosen, lists, math.ceil(math.sqrt(lists)), min(count, wanted), rule)


def new_engine(plan: IndexPlan, descriptors: Kind, dim: int) -> Any:
    """An empty index of FAISS, untrained."""
    faiss = faiss_library()
    if descriptors == "binary":
        if plan.kind == "flat":
            # IDMap does not own what it is given unless told to; Python's reference keeps it alive.
            return faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(dim))
        return faiss.index_binary_factory(dim, f"BIVF{plan.lists}")
    if plan.kind == "flat":
        return faiss.index_factory(dim, "IDMap,Flat")
    if plan.kind == "ivf":
        return faiss.index_factory(dim, f"IVF{plan.lists},Flat")
    # The rotation also brings D to a multiple of the bytes of a code. "np" leaves out a training for comparing codes by
    # Hamming distance, which nobody does here and which takes longer than all the rest.
    rotated = dim // CODE_BYTES * CODE_BYTES
    engine = faiss.index_factory(dim, f"OPQ{CODE_BYTES}_{rotated},IVF{plan.lists},PQ{CODE_BYTES}x8np")
    faiss.downcast_VectorTransform(engine.chain.at(0)).niter = _ROTATION_ROUNDS
    return engine


def set_probes(engine: Any, probes: int) -> None:
    """How many lists to look through; not for flat indexes."""
    (engine if hasattr(engine, "nprobe") else faiss_library().extract_index_ivf(engine)).nprobe = probes


def ids_of(engine: Any, plan_kind: str) -> NDArray[np.int64]:
    """(N,) the ids that an index holds, in no order."""
    faiss = faiss_library()
    if plan_kind == "flat":
        return np.asarray(faiss.vector_to_array(engine.id_map), np.int64)
    inverted = engine if hasattr(engine, "invlists") else faiss.extract_index_ivf(engine)
    lists = inverted.invlists
    parts = [
        faiss.rev_swig_ptr(lists.get_ids(number), lists.batch_size(number)).copy()
        for number in range(inverted.nlist)
        if lists.batch_size(number)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def merge_into(whole: Any, other: Any) -> None:
    """Move all descriptors of another index, trained alike, into this one; they keep their ids."""
    faiss = faiss_library()
    if isinstance(whole, faiss.IndexBinaryIDMap):
        # The one kind that FAISS does not merge itself.
        codes = faiss.downcast_IndexBinary(other.index).reconstruct_n(0, other.ntotal)
        whole.add_with_ids(codes, faiss.vector_to_array(other.id_map))
    else:
        whole.merge_from(other, 0)


def write_engine(engine: Any, path: Path) -> None:
    """Write an index of FAISS; call with a temporary name."""
    faiss = faiss_library()
    (faiss.write_index_binary if isinstance(engine, faiss.IndexBinary) else faiss.write_index)(engine, str(path))


def read_engine(path: Path, descriptors: Kind) -> Any:
    """Read what `write_engine` wrote."""
    faiss = faiss_library()
    try:
        return (faiss.read_index_binary if descriptors == "binary" else faiss.read_index)(str(path))
    except (RuntimeError, MemoryError) as error:
        # A damaged length may ask for more memory than there is.
        what = "a damaged one" if path.exists() else "nothing there"
        raise DataError(f"{path}: expected a part of an index, got {what}; copy or build the index again") from error


def faiss_library() -> Any:
    """FAISS, or what to install."""
    faiss = import_extra("faiss", "index")
    # FAISS 1.15 compares up to a thousand queries one by one, in five times the time that a product of matrices takes.
    faiss.cvar.distance_compute_blas_threshold = 0
    return faiss
