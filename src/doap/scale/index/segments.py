"""Segments of an index: read the features of images, and write their descriptors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.files import atomic_write
from doap.random_streams import stream
from doap.scale.features import FeatureSet, StoredImage
from doap.scale.index.engine import read_engine, write_engine
from doap.scale.index.folder import trained_file
from doap.types import Progress


def next_id(meta: dict[str, Any]) -> int:
    """Return the id of the first descriptor of the next segment; ids are consecutive, segment after segment."""
    segments = meta["segments"]
    return int(segments[-1]["first_id"] + segments[-1]["count"]) if segments else 0


class SegmentWriter:
    """Context manager that writes the files of one segment; `finish` lists them in the metadata of the index.

    Args:
        folder: Folder of the index.
        meta: Contents of meta.json, to which the segment is appended.
    """

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        number = meta["next_segment"]
        self._folder, self._meta, self._stack = folder, meta, ExitStack()
        self._files = {"index": f"segment-{number:06}.faiss", "frames": f"frames-{number:06}.npy"}
        self._frames = [np.empty((0, 2, 3), np.float32)]
        self._rows: Any = None
        if meta["index"]["kind"] == "ivf-pq":
            self._files["rows"] = f"rows-{number:06}.float16"

    def __enter__(self) -> SegmentWriter:
        if "rows" in self._files:
            unfinished = self._stack.enter_context(atomic_write(self._folder / self._files["rows"]))
            self._rows = self._stack.enter_context(unfinished.open("wb"))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, frames: NDArray[np.float32], descriptors: NDArray[Any]) -> None:
        """Append the frames (N, 2, 3) of descriptors (N, D); codes also need the descriptors themselves on disk."""
        self._frames.append(frames)
        if self._rows:
            self._rows.write(descriptors.astype(np.float16, copy=False).tobytes())

    def finish(self, engine: Any) -> None:
        """Write the FAISS index of the descriptors, whose ids are in the order of `add`."""
        self._stack.close()
        with atomic_write(self._folder / self._files["index"]) as unfinished:
            write_engine(engine, unfinished)
        with atomic_write(self._folder / self._files["frames"]) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.concatenate(self._frames))
        entry = {**self._files, "first_id": next_id(self._meta), "count": sum(map(len, self._frames))}
        self._meta["segments"].append(entry)
        self._meta["next_segment"] += 1


class FeatureReader:
    """Reads the features of some images several times in the same order."""

    def __init__(
        self, features: FeatureSet, names: Sequence[str], max_keypoints: int | None, progress: Progress
    ) -> None:
        self.features, self._wanted, self._max_keypoints, self._progress = features, names, max_keypoints, progress
        self.names: list[str] = []
        self.checksums: list[str] = []
        self.total, self._done = 0, 0

    def count(self) -> NDArray[np.int64]:
        """Return the number of descriptors per image (I,), and set names and checksums."""
        counts = []
        for image in self._images():
            self.names.append(image.name)
            self.checksums.append(image.checksum)
            counts.append(len(image.features))
        return np.array(counts, np.int64)

    def sample(self, counts: NDArray[np.int64], size: int, seed: int) -> NDArray[Any]:
        """Return random descriptors (size, D), in their order."""
        random = stream(seed, "index")
        chosen = np.sort(random.choice(int(counts.sum()), size, replace=False, shuffle=False))
        # (I + 1,) each: image i has the ids from ids[i], and chosen[ends[i] : ends[i + 1]] are the chosen ones.
        ids = np.concatenate([[0], counts.cumsum()])
        ends = np.searchsorted(chosen, ids)
        rows = []
        for number, image in enumerate(self._images()):
            rows.append(image.features.descriptors.numpy()[chosen[ends[number] : ends[number + 1]] - ids[number]])
        return np.concatenate(rows)

    def write_segments(self, folder: Path, meta: dict[str, Any], counts: NDArray[np.int64], segments: int) -> None:
        """Write all descriptors with consecutive ids to segments of nearly equal size, and list these in `meta`."""
        starts = counts.cumsum() - counts
        segment_of_image = starts * segments // max(1, int(counts.sum()))
        first_ids = next_id(meta) + starts
        images = zip(segment_of_image.tolist(), first_ids.tolist(), self._images(), strict=True)
        for _, part in groupby(images, key=itemgetter(0)):
            engine = read_engine(folder / trained_file(meta["files"]), self.features.kind)
            with SegmentWriter(folder, meta) as writer:
                for _, start, image in part:
                    descriptors = image.features.descriptors.contiguous().numpy()
                    engine.add_with_ids(descriptors, np.arange(start, start + len(descriptors)))
                    writer.add(image.features.frames, descriptors)
                writer.finish(engine)

    def _images(self) -> Iterator[StoredImage]:
        for image in self.features.stream(self._wanted):
            self._done += 1
            self._progress(self._done, self.total, image.name)
            yield dataclasses.replace(image, features=image.features.strongest(self._max_keypoints))
