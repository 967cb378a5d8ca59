"""An index of one machine: a FAISS index in a folder, which every change writes again.

    INDEX/
    ├── meta.json                 settings, images in the order of their descriptors, and the checksum of these
    └── descriptors-000001.faiss  FAISS index; the id of a descriptor is its position

A change writes the descriptors to a file with the next number, and takes effect when the new meta.json is renamed into
place. Then it deletes the old file. A killed change has no effect, and the next one deletes its file. A change that
starts while another one runs is refused.

A reader opens the descriptors together with meta.json: the system frees a deleted file when its last reader closes it.
If the file is missing by then, it starts again with the next meta.json.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from doap._support.errors import ArgumentError, DataError, import_extra
from doap._support.files import OutputLock, atomic_write, new_folder, read_json, sha256
from doap._support.random_streams import stream
from doap._support.settings import FORBID_EXTRA, validate
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import FeatureSet, StoredImage, as_feature_set
from doap.collection.index.protocol import (
    REMOVED,
    Count,
    DescriptorIndex,
    IndexChange,
    IndexedImage,
    IndexKind,
    check_extractor,
    check_probes,
    check_queries,
    choose_lists,
    plan_change,
)
from doap.types import Progress, no_progress

FORMAT = 1
META, DESCRIPTORS = "meta.json", "descriptors-{:06}.faiss"
_REMEDY = "Copy or build the index again."
_SAMPLE_PER_LIST = 64


@dataclass(frozen=True)
class _Meta:
    """Contents of meta.json."""

    __pydantic_config__ = FORBID_EXTRA

    format: int
    number: Count  # of the file of descriptors
    lists: Count
    max_keypoints: Annotated[int, Field(ge=1)] | None
    extractor: ExtractorInfo
    images: list[IndexedImage]
    bytes: Count = 0
    sha256: str = ""


@dataclass(frozen=True)
class IndexInfo:
    """Contents and costs of an index.

    Attributes:
        kind: Kind of the index.
        lists: Number of inverted lists; 0 for a flat index.
        probes: Number of lists searched per query descriptor, unless another one is requested.
        images: Number of images.
        descriptors: Number of descriptors.
        removed: Number of images that were removed, and therefore cannot be added.
        bytes: Size of the descriptors, on disk and in memory.
        memory: Bytes of memory that a search needs: all descriptors, or the centres of lists on disk.
    """

    kind: IndexKind
    lists: int
    probes: int
    images: int
    descriptors: int
    removed: int
    bytes: int
    memory: int


class Index(DescriptorIndex):
    """An index in its state at the time of opening, or of its own last change.

    It keeps its file open, so another process that changes the index does not disturb it. This does not hold on network
    file systems if another machine changes the index. The first search reads the descriptors.

    Args:
        folder: Folder written by `build_index`.
        in_memory: Read all descriptors into memory. Otherwise the inverted lists stay on disk and are mapped into
            memory, and the system caches as much of them as fits. The results are the same. A flat index has no lists
            and is always read.

    Attributes:
        folder: The folder.
        lists: Number of inverted lists; 0 for a flat index.
        images: Images by number, in the order of their descriptors, with removed ones.
    """

    def __init__(self, folder: str | Path, *, in_memory: bool = True) -> None:
        self.folder, self.name, self.in_memory = _local_folder(folder), str(folder), in_memory
        self._open()

    def _open(self) -> None:
        self._meta = meta = _read_meta(self.folder)
        self._path = self.folder / DESCRIPTORS.format(meta.number)
        try:
            self._reader = _open_file(self._path)
            size = self._path.stat().st_size
        except (DataError, FileNotFoundError):
            # A change may have deleted the file in the meantime.
            if _read_meta(self.folder).number == meta.number:
                raise
            self._open()
            return
        if size != meta.bytes:
            raise DataError(f"{self._path}: expected {meta.bytes:,} bytes, got {size:,}. Copy the index again.")
        self.extractor, self.lists, self.images = meta.extractor, meta.lists, meta.images
        self._numbers = {one.name: number for number, one in enumerate(meta.images) if one.checksum != REMOVED}
        # (I + 1,) ids of the first descriptor of each image, and the number of descriptors.
        self._starts = np.cumsum([0, *(image.descriptors for image in meta.images)], dtype=np.int64)
        vars(self).pop("_engine", None)

    @property
    def names(self) -> list[str]:
        """Names of the images, sorted."""
        return sorted(self._numbers)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def add(self, features: str | Path | FeatureSet, *, progress: Progress = no_progress) -> IndexChange:
        features = as_feature_set(features)
        with self._change():
            check_extractor(self.name, self.extractor, features)
            change, names = self._plan(features)
            if names:
                images = _read_images(features, names, self._meta.max_keypoints, progress)
                _write(self.folder, self._meta, self._engine_without(names), images)
        return change

    def remove(self, names: Collection[str]) -> IndexChange:
        with self._change():
            if unknown := sorted(set(names) - self._numbers.keys()):
                raise ArgumentError(f"{unknown[0]}: expected the name of an image in {self.name}.")
            engine, kept = self._engine_without(names)
            removed = [IndexedImage(name, REMOVED, 0) for name in sorted(set(names))]
            _write(self.folder, self._meta, (engine, [*kept, *removed]), [])
        return IndexChange(removed=len(set(names)))

    def search(
        self, descriptors: Tensor | NDArray[Any], k: int, *, probes: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        queries = check_queries(self.extractor, descriptors)
        if not 1 <= k <= len(self):
            raise ArgumentError(f"k: expected 1 to {len(self):,}, the number of descriptors in the index, got {k}.")
        probes = check_probes(probes, self.lists)
        if self.lists:
            self._engine.nprobe = probes
        distances, ids = self._engine.search(queries, k)
        if ids.max(initial=-1) >= len(self):
            raise DataError(f"{self._path}: damaged. {_REMEDY}")
        if self.extractor.kind == "real":
            # Rounding may produce values slightly below 0 for identical descriptors.
            np.sqrt(np.maximum(distances, 0, out=distances), out=distances)
        return distances, ids

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        # An image without descriptors starts where the next one does; the last of them has the descriptor.
        return np.where(ids < 0, -1, np.searchsorted(self._starts, ids, side="right") - 1)

    def images_at(self, numbers: Iterable[int]) -> list[IndexedImage]:
        return [self.images[number] for number in numbers]

    def find(self, name: str) -> IndexedImage | None:
        return self.images[self._numbers[name]] if name in self._numbers else None

    def info(self) -> IndexInfo:
        """Return contents and costs."""
        centres = self.lists * (4 * self.extractor.dim if self.extractor.kind == "real" else self.extractor.dim // 8)
        return IndexInfo(
            kind="ivf" if self.lists else "flat",
            lists=self.lists,
            probes=check_probes(None, self.lists),
            images=len(self._numbers),
            descriptors=len(self),
            removed=len(self.images) - len(self._numbers),
            bytes=self._meta.bytes,
            memory=self._meta.bytes if self.in_memory or not self.lists else centres,
        )

    def verify(self, features: str | Path | FeatureSet | None = None) -> None:
        """Compare the descriptors with their checksum; raise `DataError` if they are damaged.

        Args:
            features: Check also that the index contains all of these features in their current state.
        """
        if (found := sha256(self._path)) != self._meta.sha256:
            raise DataError(f"{self._path}: expected SHA-256 {self._meta.sha256}, got {found}. {_REMEDY}")
        if features is not None:
            features = as_feature_set(features)
            check_extractor(self.name, self.extractor, features)
            if names := self._plan(features)[1]:
                raise DataError(f"{features.folder}: {self.name} does not contain {names[0]}. Run doap index add.")

    @cached_property
    def _engine(self) -> Any:
        return self._read(self._reader, in_memory=self.in_memory or not self.lists)

    def _read(self, reader: Any, *, in_memory: bool = True) -> Any:
        """Read the FAISS index, and check the number of descriptors, the dimension and the number of lists."""
        faiss = faiss_library()
        read = faiss.read_index_binary if self.extractor.kind == "binary" else faiss.read_index
        try:
            engine = read(reader, 0 if in_memory else faiss.IO_FLAG_MMAP)
        except (RuntimeError, MemoryError) as error:
            # A damaged length may request more memory than exists.
            raise DataError(f"{self._path}: damaged. {_REMEDY}") from error
        found, expected = (
            (engine.ntotal, engine.d, getattr(engine, "nlist", 0)),
            (len(self), self.extractor.dim, self.lists),
        )
        if found != expected:
            raise DataError(f"{self._path}: expected (descriptors, D, lists) = {expected}, got {found}. {_REMEDY}")
        if not in_memory:
            # FAISS would read the lists of all queries of a batch ahead, with 32 threads. If they do not fit into
            # memory, the system drops them before they are searched.
            faiss.downcast_InvertedLists(engine.invlists).prefetch_nthread = 0
        return engine

    def _plan(self, features: FeatureSet) -> tuple[IndexChange, list[str]]:
        return plan_change(features, {image.name: image.checksum for image in self.images})

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Lock the folder; open the current state before a change, and the new one after it."""
        _read_meta(self.folder)
        with OutputLock(self.folder, inside=True):
            self._open()
            _clean(self.folder, self._meta.number)
            yield
            self._open()

    def _engine_without(self, names: Collection[str]) -> tuple[Any, list[IndexedImage]]:
        """Return the FAISS index, and its images, without those of the names."""
        faiss, engine, drop = faiss_library(), self._read(_open_file(self._path)), set(names) & self._numbers.keys()
        if drop:
            kept = np.repeat([image.name not in drop for image in self.images], np.diff(self._starts))
            engine.remove_ids(np.flatnonzero(~kept))
            # Without lists, FAISS numbers the descriptors itself.
            positions = kept.cumsum() - 1
            for number in range(self.lists):
                ids = faiss.rev_swig_ptr(engine.invlists.get_ids(number), engine.invlists.list_size(number))
                ids[:] = positions.take(ids, mode="clip")
        return engine, [image for image in self.images if image.name not in drop]


def as_index(index: str | Path | DescriptorIndex) -> DescriptorIndex:
    """Open an index given by its folder; return an open one unchanged."""
    return Index(index) if isinstance(index, str | Path) else index


def build_index(
    features: str | Path | FeatureSet,
    out: str | Path,
    *,
    kind: IndexKind | None = None,
    max_keypoints: int | None = None,
    progress: Progress = no_progress,
) -> Path:
    """Build an index of the local descriptors of many images.

    The features are read to count them, to train the lists of an ivf index, and to add them. Memory holds a few images,
    the training sample (64 descriptors per list), and the index.

    Args:
        features: Features of the images, from `doap.extract_folder`.
        out: Folder of the index. It must not exist, and appears when it is complete.
        kind: Kind of the index; None chooses it by the number of descriptors, see `IndexKind`.
        max_keypoints: Maximum number of keypoints per image; None uses all.
        progress: Called for every image that is read.

    Returns:
        `out` as a path.
    """
    features, folder = as_feature_set(features), _local_folder(out)
    if max_keypoints is not None and max_keypoints < 1:
        raise ArgumentError(f"max_keypoints: expected 1 or more, got {max_keypoints}.")

    def images() -> Iterator[StoredImage]:
        return _read_images(features, features.names, max_keypoints, progress)

    with new_folder(folder, "Choose another folder, or add to it with doap index add.") as unfinished:
        counts, faiss, info = [len(image.features) for image in images()], faiss_library(), features.extractor
        if not (total := sum(counts)):
            raise DataError(f"{features.folder}: none of the images has a keypoint.")
        lists = choose_lists(total, info.kind, kind)
        if info.kind == "binary":
            engine = faiss.index_binary_factory(info.dim, f"BIVF{lists}" if lists else "BFlat")
        else:
            engine = faiss.index_factory(info.dim, f"IVF{lists},SQfp16" if lists else "Flat")
        if lists:
            engine.train(_sample(images(), counts, min(total, _SAMPLE_PER_LIST * lists)))
        _write(unfinished, _Meta(FORMAT, 0, lists, max_keypoints, info, []), (engine, []), images())
    return folder


def _local_folder(index: str | Path) -> Path:
    scheme, separator, _ = str(index).partition("://")
    if isinstance(index, str) and separator:
        raise ArgumentError(
            f"index: expected a folder on this machine, got a URL ({scheme}://). Copy it, or use --engine milvus."
        )
    return Path(index)


def _read_images(
    features: FeatureSet, names: Sequence[str], max_keypoints: int | None, progress: Progress
) -> Iterator[StoredImage]:
    """Yield images in storage order, each with its strongest keypoints."""
    for done, image in enumerate(features.stream(names), start=1):
        progress(done, len(names), image.name)
        yield dataclasses.replace(image, features=image.features.strongest(max_keypoints))


def _sample(images: Iterable[StoredImage], counts: Sequence[int], size: int) -> NDArray[Any]:
    """Return random descriptors (size, D), in their order."""
    ends = np.cumsum(counts)
    chosen = np.sort(stream(0, "index").choice(int(ends[-1]), size, replace=False, shuffle=False))
    parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    rows = zip(images, parts, ends - counts, strict=True)
    return np.concatenate([image.features.descriptors.numpy()[part - start] for image, part, start in rows])


def _write(folder: Path, meta: _Meta, kept: tuple[Any, list[IndexedImage]], images: Iterable[StoredImage]) -> None:
    """Write the next state of a folder: the FAISS index and the images that are kept, and more images."""
    (engine, indexed), faiss = kept, faiss_library()
    for image in images:
        engine.add(image.features.descriptors.contiguous().numpy())
        indexed.append(IndexedImage(image.name, image.checksum, len(image.features)))
    number = meta.number + 1
    path = folder / DESCRIPTORS.format(number)
    with atomic_write(path) as unfinished:
        write = faiss.write_index_binary if isinstance(engine, faiss.IndexBinary) else faiss.write_index
        write(engine, str(unfinished))
    changed = dataclasses.replace(meta, number=number, images=indexed, bytes=path.stat().st_size, sha256=sha256(path))
    with atomic_write(folder / META) as unfinished:
        unfinished.write_text(json.dumps(dataclasses.asdict(changed)) + "\n", encoding="utf-8")
    _clean(folder, number)


def _clean(folder: Path, number: int) -> None:
    """Delete files of descriptors with other numbers than the current one."""
    for path in folder.glob("descriptors-*.faiss"):
        if path.name != DESCRIPTORS.format(number):
            # Windows does not delete a file that a reader has open. A later change does.
            with suppress(OSError):
                path.unlink()


def _read_meta(folder: Path) -> _Meta:
    path = folder / META
    if not path.exists():
        raise DataError(f"{folder}: not an index (no {META}). Build one with doap index build.")
    meta = read_json(path, "the metadata of an index")
    if (found := meta.get("format")) != FORMAT:
        raise DataError(f"{path}: not an index: expected format {FORMAT}, got {found!r}. Build the index again.")
    return validate(_Meta, meta, f"{path}: not an index")


def _open_file(path: Path) -> Any:
    """Open a file that FAISS can read once, even if it is deleted in the meantime."""
    try:
        return faiss_library().FileIOReader(str(path))
    except RuntimeError as error:
        raise DataError(f"{path}: missing. {_REMEDY}") from error


def faiss_library() -> Any:
    """Import FAISS."""
    faiss = import_extra("faiss", "index")
    # FAISS 1.15 compares fewer than a thousand queries one by one, which is five times slower than a matrix product.
    faiss.cvar.distance_compute_blas_threshold = 0
    return faiss
