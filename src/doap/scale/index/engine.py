"""FAISS: the type of index for a number of descriptors, and the differences between real and binary indexes."""

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
"""`flat` compares all descriptors, `ivf` those of the nearest lists, `ivf-pq` their 16-byte codes."""

# Maximum number of descriptors of each kind of index.
LIMITS: dict[Kind, dict[IndexKind, float]] = {
    "real": {"flat": 100_000, "ivf": 2_000_000, "ivf-pq": math.inf},
    "binary": {"flat": 1_000_000, "ivf": math.inf},
}
CODE_BYTES = 16
SAMPLE_PER_LIST = 64
"""Number of training descriptors per list; FAISS warns below 39 and uses at most 256."""
_MIN_PER_LIST = 39
# Each byte of a code has 256 centres of its own, trained on the same sample.
_MIN_FOR_CODES, _SAMPLE_FOR_CODES = 256, 256 * 256
# FAISS's default of 50 iterations would double the training time.
_ROTATION_ITERATIONS = 20


@dataclass(frozen=True)
class IndexPlan:
    """Parameters of an index.

    Attributes:
        kind: See `IndexKind`.
        lists: Number of inverted lists; 0 for flat.
        probes: Default number of lists searched per query.
        sample: Number of training descriptors; 0 for flat.
        rule: Explanation of the choice.
    """

    kind: IndexKind
    lists: int
    probes: int
    sample: int
    rule: str


def plan_index(count: int, descriptors: Kind, dim: int, kind: IndexKind | None = None) -> IndexPlan:
    """Choose the parameters of an index for N = `count` descriptors, and its kind unless it is given.

    There are 2·√N lists, and √lists of them are searched per query. Both parts of a search, finding the lists and
    comparing their descriptors, then grow more slowly than N. Twice as many lists would take four times as long to
    train, and at a million descriptors their centres would cost two bytes per descriptor instead of one.

    >>> plan = plan_index(1_000_000, "real", 128)
    >>> plan.kind, plan.lists, plan.probes, plan.sample
    ('ivf', 2000, 45, 128000)
    >>> plan.rule
    '1,000,000 real descriptors: ivf, since flat is for up to 100,000, ivf for up to 2,000,000, ivf-pq for more'
    """
    limits = LIMITS[descriptors]
    if kind is not None:
        check_choice(kind, tuple(limits), name=f"kind of an index of {descriptors} descriptors")
        chosen, rule = kind, f"{count:,} {descriptors} descriptors: {kind}, as requested"
    else:
        chosen = next(name for name, limit in limits.items() if count <= limit)
        ranges = (f"{name} for {'more' if limit == math.inf else f'up to {limit:,}'}" for name, limit in limits.items())
        rule = f"{count:,} {descriptors} descriptors: {chosen}, since {', '.join(ranges).replace(' for', ' is for', 1)}"
    if chosen == "flat":
        return IndexPlan(chosen, 0, 0, 0, rule)
    if chosen == "ivf-pq" and (count < _MIN_FOR_CODES or dim < CODE_BYTES):
        raise ArgumentError(
            f"kind: ivf-pq requires {_MIN_FOR_CODES} descriptors with D = {CODE_BYTES} or more, got {count:,} with "
            f"D = {dim}. Choose flat."
        )
    lists = max(1, min(round(2 * math.sqrt(count)), count // _MIN_PER_LIST))
    wanted = max(SAMPLE_PER_LIST * lists, _SAMPLE_FOR_CODES if chosen == "ivf-pq" else 0)
    return IndexPlan(chosen, lists, math.ceil(math.sqrt(lists)), min(count, wanted), rule)


def new_engine(plan: IndexPlan, descriptors: Kind, dim: int) -> Any:
    """Create an empty, untrained FAISS index."""
    faiss = faiss_library()
    if descriptors == "binary":
        if plan.kind == "flat":
            # IDMap does not own its index; the reference in Python keeps it alive.
            return faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(dim))
        return faiss.index_binary_factory(dim, f"BIVF{plan.lists}")
    if plan.kind == "flat":
        return faiss.index_factory(dim, "IDMap,Flat")
    if plan.kind == "ivf":
        return faiss.index_factory(dim, f"IVF{plan.lists},Flat")
    # The rotation also reduces D to a multiple of the code bytes. "np" skips a long training step that is needed only
    # to compare codes by Hamming distance.
    rotated = dim // CODE_BYTES * CODE_BYTES
    engine = faiss.index_factory(dim, f"OPQ{CODE_BYTES}_{rotated},IVF{plan.lists},PQ{CODE_BYTES}x8np")
    faiss.downcast_VectorTransform(engine.chain.at(0)).niter = _ROTATION_ITERATIONS
    return engine


def set_probes(engine: Any, probes: int) -> None:
    """Set the number of lists searched per query; not for flat indexes."""
    (engine if hasattr(engine, "nprobe") else faiss_library().extract_index_ivf(engine)).nprobe = probes


def list_ids(engine: Any, plan_kind: str) -> NDArray[np.int64]:
    """Return the ids (N,) in an index, in any order."""
    faiss = faiss_library()
    if plan_kind == "flat":
        return np.asarray(faiss.vector_to_array(engine.id_map), np.int64)
    inverted = engine if hasattr(engine, "invlists") else faiss.extract_index_ivf(engine)
    lists = inverted.invlists
    parts = [
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy()
        for number in range(inverted.nlist)
        if lists.list_size(number)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def merge_into(target: Any, other: Any) -> None:
    """Move all descriptors of another index with the same training into this one; they keep their ids."""
    faiss = faiss_library()
    if isinstance(target, faiss.IndexBinaryIDMap):
        # The only kind that FAISS cannot merge itself.
        codes = faiss.downcast_IndexBinary(other.index).reconstruct_n(0, other.ntotal)
        target.add_with_ids(codes, faiss.vector_to_array(other.id_map))
    else:
        target.merge_from(other, 0)


def write_engine(engine: Any, path: Path) -> None:
    """Write a FAISS index. Not atomic: call it with a temporary path."""
    faiss = faiss_library()
    (faiss.write_index_binary if isinstance(engine, faiss.IndexBinary) else faiss.write_index)(engine, str(path))


def read_engine(path: Path, descriptors: Kind) -> Any:
    """Read a FAISS index."""
    faiss = faiss_library()
    try:
        return (faiss.read_index_binary if descriptors == "binary" else faiss.read_index)(str(path))
    except (RuntimeError, MemoryError) as error:
        # A damaged length may request more memory than exists.
        state = "damaged" if path.exists() else "missing"
        raise DataError(f"{path}: {state}. Copy or build the index again.") from error


def faiss_library() -> Any:
    """Import FAISS."""
    faiss = import_extra("faiss", "index")
    # FAISS 1.15 compares fewer than a thousand queries one by one, which is five times slower than a matrix product.
    faiss.cvar.distance_compute_blas_threshold = 0
    return faiss
