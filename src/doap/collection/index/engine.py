"""FAISS: create, read, write and search its indexes, real and binary ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError, import_extra
from doap._support.text import counted
from doap.collection.index.plan import CODE_BYTES, IndexPlan
from doap.types import Kind

# FAISS's default of 50 iterations would double the training time.
_ROTATION_ITERATIONS = 20


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


def search_without(
    engine: Any, queries: NDArray[Any], k: int, is_removed: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Search an index with removed descriptors in its lists; `is_removed` returns whether ids are among them.

    FAISS has no filter for binary lists. So k neighbours are requested, and then twice as many for the queries with
    removed ones among them, until k are left. k is at most the number of descriptors that are not removed.

    Returns:
        Distances (Q, k) and ids (Q, k), as FAISS returns them.
    """
    found_distances, found_ids = engine.search(queries, k)
    rows, wanted = np.flatnonzero(is_removed(found_ids).any(axis=1)), k
    while len(rows):
        wanted = min(2 * wanted, engine.ntotal)
        distances, ids = engine.search(queries[rows], wanted)
        gone = is_removed(ids)
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
        self._path, self._descriptors = path, descriptors
        try:
            self._reader = faiss_library().FileIOReader(str(path))
        except RuntimeError as error:
            raise DataError(f"{path}: missing. Copy or build the index again.") from error

    def read(self, count: int, dim: int, lists: int, *, in_memory: bool = True) -> Any:
        """Read the index, and check the number of descriptors, the dimension and the number of lists.

        With `in_memory=False`, the lists are mapped into memory, and the system reads what is searched.
        """
        faiss = faiss_library()
        read = faiss.read_index_binary if self._descriptors == "binary" else faiss.read_index
        try:
            engine = read(self._reader, 0 if in_memory else faiss.IO_FLAG_MMAP)
        except (RuntimeError, MemoryError) as error:
            # A damaged length may request more memory than exists.
            raise DataError(f"{self._path}: damaged. Copy or build the index again.") from error
        inverted = _inverted(engine)
        found = engine.ntotal, engine.d, 0 if inverted is None else inverted.nlist
        if found != (expected := (count, dim, lists)):
            wanted, got = (
                f"{counted(count, 'descriptor')} with D = {dim} in {counted(lists, 'list')}"
                for count, dim, lists in (expected, found)
            )
            raise DataError(f"{self._path}: expected {wanted}, got {got}. Copy or build the index again.")
        if inverted is not None and not in_memory:
            # FAISS would read the lists of all queries of a batch ahead, with 32 threads. If they do not fit into
            # memory, the system drops them before they are searched.
            faiss.downcast_InvertedLists(inverted.invlists).prefetch_nthread = 0
        return engine


def faiss_library() -> Any:
    """Import FAISS."""
    faiss = import_extra("faiss", "index")
    # FAISS 1.15 compares fewer than a thousand queries one by one, which is five times slower than a matrix product.
    faiss.cvar.distance_compute_blas_threshold = 0
    return faiss
