"""FAISS: the type of index for a number of descriptors, and the differences between real and binary indexes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
MIN_PER_LIST = 39
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
    lists = max(1, min(round(2 * math.sqrt(count)), count // MIN_PER_LIST))
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
    _inverted(engine).nprobe = probes


def _inverted(engine: Any) -> Any:
    """Return the part of an index that has inverted lists; None for flat indexes."""
    if hasattr(engine, "invlists"):
        return engine
    faiss = faiss_library()
    return None if isinstance(engine, faiss.IndexBinary) else faiss.try_extract_index_ivf(engine)


def count_lists(engine: Any) -> int:
    """Return the number of inverted lists; 0 for flat indexes."""
    inverted = _inverted(engine)
    return 0 if inverted is None else int(inverted.nlist)


def list_ids(engine: Any, plan_kind: str) -> NDArray[np.int64]:
    """Return the ids (N,) in an index, in any order."""
    faiss = faiss_library()
    if plan_kind == "flat":
        return np.asarray(faiss.vector_to_array(engine.id_map), np.int64)
    lists = _inverted(engine).invlists
    parts = [
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy()
        for number in range(lists.nlist)
        if lists.list_size(number)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def replace_ids(engine: Any, plan_kind: str, convert: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> None:
    """Give the descriptors of an index in memory new ids; drop those whose new id is negative.

    The others stay in their order, unlike after `remove_ids` of FAISS, which moves the last descriptor of a list into
    the gap. The first of equally distant neighbours are therefore the same with and without a removal on disk.
    """
    faiss = faiss_library()
    if plan_kind == "flat":
        ids = list_ids(engine, plan_kind)
        new = convert(ids)
        if (new < 0).any():
            engine.remove_ids(ids[new < 0])
        faiss.copy_array_to_vector(np.ascontiguousarray(new[new >= 0]), engine.id_map)
        return
    inverted = _inverted(engine)
    lists = inverted.invlists
    for number in range(lists.nlist):
        if size := lists.list_size(number):
            ids = faiss.rev_swig_ptr(lists.get_ids(number), size)
            new = convert(ids)
            kept = np.flatnonzero(new >= 0)
            ids[: len(kept)] = new[kept]
            if len(kept) < size:
                codes = faiss.rev_swig_ptr(lists.get_codes(number), size * lists.code_size).reshape(size, -1)
                codes[: len(kept)] = codes[kept]
                lists.resize(number, len(kept))
    engine.ntotal = inverted.ntotal = lists.compute_ntotal()


def merge_into(target: Any, other: Any) -> None:
    """Move all descriptors of another index with the same training into this one; they keep their ids."""
    faiss = faiss_library()
    if isinstance(target, faiss.IndexBinaryIDMap):
        # The only kind that FAISS cannot merge itself.
        codes = faiss.downcast_IndexBinary(other.index).reconstruct_n(0, other.ntotal)
        target.add_with_ids(codes, faiss.vector_to_array(other.id_map))
    else:
        target.merge_from(other, 0)


def stack_lists(target: Any, others: Sequence[Any]) -> Any:
    """Let an index without descriptors search the lists of others with the same training, where they are.

    The order of descriptors in a list is that after `merge_into`. FAISS copies the parts of a list when it searches it.

    Returns:
        An object to keep as long as the index, because FAISS refers to the lists but does not own them.
    """
    faiss = faiss_library()
    lists = faiss.InvertedListsPtrVector()
    for other in others:
        lists.push_back(_inverted(other).invlists)
    stacked = faiss.HStackInvertedLists(lists.size(), lists.data())
    inverted = _inverted(target)
    inverted.replace_invlists(stacked, False)
    target.ntotal = inverted.ntotal = sum(other.ntotal for other in others)
    return stacked, list(others)


def search_without(
    engine: Any, queries: NDArray[Any], k: int, removed: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Search an index whose removed descriptors, a mask (N,) by id, are still in the lists.

    FAISS has no filter for binary lists. So k neighbours are requested, and then twice as many for the queries with
    removed ones among them, until k are left. k is at most the number of descriptors that are not removed.

    Returns:
        Distances (Q, k) and ids (Q, k), as FAISS returns them.
    """
    found_distances, found_ids = engine.search(queries, k)
    gone = (found_ids >= 0) & removed[found_ids]
    rows, wanted = np.flatnonzero(gone.any(axis=1)), k
    while len(rows):
        wanted = min(2 * wanted, engine.ntotal)
        distances, ids = engine.search(queries[rows], wanted)
        gone = (ids >= 0) & removed[ids]
        order = np.argsort(gone, axis=1, kind="stable")[:, :k]
        enough = (~gone).sum(axis=1) >= k
        found_distances[rows[enough]] = np.take_along_axis(distances, order, 1)[enough]
        found_ids[rows[enough]] = np.take_along_axis(ids, order, 1)[enough]
        rows = rows[~enough]
    return found_distances, found_ids


def missing_distance(dtype: np.dtype[Any]) -> Any:
    """Return the distance that FAISS reports for a missing neighbour, which has the id −1."""
    return np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max


def write_engine(engine: Any, path: Path) -> None:
    """Write a FAISS index. Not atomic: call it with a temporary path."""
    faiss = faiss_library()
    (faiss.write_index_binary if isinstance(engine, faiss.IndexBinary) else faiss.write_index)(engine, str(path))


class EngineFile:
    """The open file of a FAISS index. It can be read once, even if the file is deleted in the meantime."""

    def __init__(self, path: Path, descriptors: Kind) -> None:
        self.path, self._descriptors = path, descriptors
        try:
            self._reader = faiss_library().FileIOReader(str(path))
        except RuntimeError as error:
            raise DataError(f"{path}: {_state(path)}. Copy or build the index again.") from error

    def read(self, *, in_memory: bool = True, tables: bool = True) -> Any:
        """Read the index.

        Args:
            in_memory: Read the lists. Otherwise they are mapped into memory, and the system reads what is searched.
            tables: Compute the tables that speed up a search among codes. An index that is merged needs none.
        """
        faiss = faiss_library()
        flags = (0 if in_memory else faiss.IO_FLAG_MMAP) | (0 if tables else faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
        read = faiss.read_index_binary if self._descriptors == "binary" else faiss.read_index
        try:
            engine = read(self._reader, flags)
        except (RuntimeError, MemoryError) as error:
            # A damaged length may request more memory than exists.
            raise DataError(f"{self.path}: {_state(self.path)}. Copy or build the index again.") from error
        if not in_memory and count_lists(engine):
            # FAISS would read the lists of all queries of a batch ahead, with 32 threads. If they do not fit into
            # memory, the system drops them before they are searched.
            faiss.downcast_InvertedLists(_inverted(engine).invlists).prefetch_nthread = 0
        return engine


def read_engine(path: Path, descriptors: Kind) -> Any:
    """Read a FAISS index into memory."""
    return EngineFile(path, descriptors).read()


def _state(path: Path) -> str:
    return "damaged" if path.exists() else "missing"


def faiss_library() -> Any:
    """Import FAISS."""
    faiss = import_extra("faiss", "index")
    # FAISS 1.15 compares fewer than a thousand queries one by one, which is five times slower than a matrix product.
    faiss.cvar.distance_compute_blas_threshold = 0
    return faiss
