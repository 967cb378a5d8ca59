"""A collection in several indexes with the same quantiser, each searched by a process of its own."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError, DataError
from doap.processes import begin_worker, starting_workers, worker_context
from doap.scale.extractor import ExtractorInfo
from doap.scale.index.base import BaseIndex
from doap.scale.index.engine import faiss_library, missing_distance
from doap.scale.index.folder import META, concatenate, trained_file
from doap.scale.index.index import Index
from doap.scale.index.snapshots import open_snapshot
from doap.scale.storage import Storage, open_storage


class ShardedIndex(BaseIndex):
    """Several indexes with the same quantiser, searched side by side as one.

    A process per shard holds its descriptors. Queries go to all processes, and the distances and ids of the neighbours
    come back. The result is that of one index of all images with the same quantiser, in which the images of the second
    shard follow those of the first. Only flat indexes of real descriptors differ, in the rounding of distances.

    Each shard stays in its state at the time of opening, as an `Index` does. The processes end with `close`, with the
    block of a `with` statement, or with the program.

        with ShardedIndex(["0.index", "1.index"]) as index:
            search_images(index, "photo.jpg")

    Args:
        folders: Folders or URLs of the indexes, built by `build_index` with the same `quantiser`.
        in_memory: As for `Index`.

    Attributes:
        folders: Folders or URLs of the indexes.
        extractor: Identity and settings of the extractor of the features.
        images: Names and ids of all shards. Numbers and ids of the second shard follow those of the first.
        plan: Kind and parameters of the shards.
    """

    def __init__(self, folders: Sequence[str | Path | Storage], *, in_memory: bool = True) -> None:
        shards = [open_storage(folder) if isinstance(folder, str | Path) else folder for folder in folders]
        self.folders: list[Path | str] = [shard.local or str(shard) for shard in shards]
        if not shards:
            raise ArgumentError("folders: expected one index or more, got none.")
        # These parts of the metadata never change, and a mistake is reported before processes start.
        _check_shards(shards, [open_snapshot(shard, lambda _, meta: meta, needed=()) for shard in shards])
        self._processes = _Processes(shards, in_memory)
        # Ends the processes when this object is deleted, and at the end of the program at the latest.
        self._finalizer = weakref.finalize(self, self._processes.close)
        try:
            opened = self._processes.ask(dict.fromkeys(range(len(self.folders)), ("describe",)))
            extractors, plans, tables = zip(*opened.values(), strict=True)
            self.extractor, self.plan, self.images = extractors[0], plans[0], concatenate(tables)
            self._check_names()
        except BaseException:
            self.close()
            raise
        stored = [int(table.counts.sum()) for table in tables]
        self._starts = np.cumsum([0, *stored])
        self._first_images = np.cumsum([0, *map(len, tables)])
        self._sizes = [int(table.counts[~table.removed].sum()) for table in tables]

    def close(self) -> None:
        """End the processes. The index cannot be searched any more."""
        self._finalizer()

    def __enter__(self) -> ShardedIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Folders of the index, for messages."""
        others = len(self.folders) - 1
        return f"{self.folders[0]}{f' and {others} more' if others else ''}"

    def nearest(self, queries: NDArray[Any], k: int, probes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the nearest of the neighbours in all shards; see `BaseIndex.nearest`."""
        calls = {number: ("nearest", queries, min(k, size), probes) for number, size in enumerate(self._sizes) if size}
        answers = self._processes.ask(calls)
        distances = np.concatenate([found for found, _ in answers.values()], axis=1)
        ids = np.concatenate(
            [np.where(found < 0, -1, found + self._starts[number]) for number, (_, found) in answers.items()], axis=1
        )
        # Each shard sorts equally distant neighbours by id, and a stable sort keeps this order.
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(distances, order, 1), np.take_along_axis(ids, order, 1)

    def compare(self, queries: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the squared distances to the original descriptors; see `BaseIndex.compare`."""
        calls = {}
        for number, (start, end) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            own = (ids >= start) & (ids < end)
            if own.any():
                calls[number] = ("compare", queries, np.where(own, ids - start, -1))
        squared = np.full(ids.shape, missing_distance(np.dtype(np.float32)), np.float32)
        for found in self._processes.ask(calls).values():
            np.minimum(squared, found, out=squared)
        return squared

    def frames(self, number: int) -> NDArray[np.float32]:
        """Read the frames (N, 2, 3) of the descriptors of an image, in their order."""
        number = range(len(self.images))[number]
        shard = int(np.searchsorted(self._first_images, number, side="right")) - 1
        call = ("frames", number - int(self._first_images[shard]))
        frames: NDArray[np.float32] = self._processes.ask({shard: call})[shard]
        return frames

    def _check_names(self) -> None:
        """Refuse shards that hold the same image."""
        names = Counter(name for name, kept in zip(self.images.names, ~self.images.removed, strict=True) if kept)
        if twice := [name for name, count in names.items() if count > 1]:
            raise DataError(f"{twice[0]}: in more than one shard of {self.name}. Remove it from all but one.")


def open_index(index: str | Path | Sequence[str | Path], *, in_memory: bool = True) -> Index | ShardedIndex:
    """Open an index in one folder, or several indexes as one.

    Args:
        index: Folder or URL of an index, a folder of several indexes, which are opened in the order of their names, or
            the folders of several indexes.
        in_memory: As for `Index`.
    """
    folders = [open_storage(folder) for folder in ([index] if isinstance(index, str | Path) else index)]
    if len(folders) == 1 and (shards := list_shards(folders[0])):
        folders = shards
    return Index(folders[0], in_memory=in_memory) if len(folders) == 1 else ShardedIndex(folders, in_memory=in_memory)


def list_shards(storage: Storage) -> list[Storage]:
    """Return the indexes in a folder that is not an index itself, sorted by name."""
    if storage.exists(META):
        return []
    if storage.local is not None:
        names = [path.parent.name for path in storage.local.glob(f"*/{META}")]
    else:
        paths = (PurePosixPath(file.name) for file in storage.list())
        names = [path.parent.name for path in paths if path.name == META and len(path.parts) == 2]
    # An index that is being built has its name only when it is complete.
    return [storage.subfolder(name) for name in sorted(names) if not name.endswith(".unfinished")]


def as_index(index: str | Path | Sequence[str | Path] | BaseIndex) -> BaseIndex:
    """Open an index given by its folder or folders; return an open one unchanged."""
    return index if isinstance(index, BaseIndex) else open_index(index)


def _check_shards(folders: Sequence[Storage], metas: Sequence[dict[str, Any]]) -> None:
    """Refuse shards whose neighbours cannot be compared."""
    extractor, quantiser = ExtractorInfo(**metas[0]["extractor"]), _identify_quantiser(metas[0])
    for folder, meta in zip(folders[1:], metas[1:], strict=True):
        if difference := extractor.difference(ExtractorInfo(**meta["extractor"])):
            raise DataError(f"{folder}: does not fit the index {folders[0]}: {difference}.")
        if _identify_quantiser(meta) != quantiser:
            remedy = "Build both with the same --quantiser."
            raise DataError(f"{folder}: expected the quantiser of {folders[0]}, got another one. {remedy}")


def _identify_quantiser(meta: dict[str, Any]) -> tuple[object, ...]:
    """Return what shards have in common: the trained index, its parameters, and the number of keypoints per image."""
    parameters = {name: value for name, value in meta["index"].items() if name != "rule"}
    return meta["files"][trained_file(meta["files"])]["sha256"], parameters, meta["training"]["max_keypoints"]


class _Processes:
    """One process per index. It opens the index, and answers one call after the other."""

    def __init__(self, folders: Sequence[Storage], in_memory: bool) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._running: list[tuple[BaseProcess, Connection]] = []
        context = worker_context(__name__)
        threads = max(1, faiss_library().omp_get_max_threads() // len(folders))
        for folder in folders:
            with starting_workers():
                ours, theirs = context.Pipe()
                arguments = (theirs, dict(os.environ), pickle.dumps(folder), in_memory, threads)
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                theirs.close()
                self._running.append((process, ours))

    def ask(self, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call methods in several processes at the same time; return their results by the number of the process.

        Args:
            calls: Name and arguments of the method, by the number of the process.
        """
        with self._lock:
            if not self._running:
                raise ArgumentError(f"{self._folders[0]}: the sharded index is closed. Open it again.")
            try:
                for number, call in calls.items():
                    self._running[number][1].send(call)
                answers = {number: self._receive(number) for number in calls}
            # Unread answers would be taken for those of the next call.
            except BaseException:
                self.close()
                raise
        for answer in answers.values():
            if isinstance(answer, Exception):
                raise answer
        return answers

    def close(self) -> None:
        """End all processes."""
        running, self._running = self._running, []
        for _, connection in running:
            connection.close()
        _join(process for process, _ in running)

    def _receive(self, number: int) -> Any:
        process, connection = self._running[number]
        try:
            return connection.recv()
        except (EOFError, OSError) as error:
            process.join(1)
            raise DataError(
                f"{self._folders[number]}: its process ended with exit code {process.exitcode}. Memory may be too "
                "small, or a script lacks `if __name__ == '__main__':` around its code."
            ) from error


def _join(processes: Iterable[BaseProcess]) -> None:
    """Wait for processes whose connection is closed, and terminate the busy ones."""
    for process in processes:
        process.join(0.5)
        if process.is_alive():
            process.terminate()
            process.join()


def _serve(
    connection: Connection, environment: Mapping[str, str], pickled: bytes, in_memory: bool, threads: int
) -> None:
    """Open an index and answer calls until the connection closes; run in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder: Storage = begin_worker(environment, pickled)
    faiss_library().omp_set_num_threads(threads)
    index: Index | None = None
    while True:
        try:
            name, *arguments = connection.recv()
        except (EOFError, OSError):
            return
        answer: Any
        try:
            if index is None:
                index = Index(folder, in_memory=in_memory)
            if name == "describe":
                answer = index.extractor, index.plan, index.images
            else:
                answer = getattr(index, name)(*arguments)
        # The calling process raises it.
        except Exception as error:
            answer = error
        # The calling process may have closed the connection while this one was busy.
        with suppress(OSError):
            connection.send(answer)
