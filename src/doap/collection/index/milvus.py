"""An index in a Milvus server, for collections beyond one machine and for several writers at once.

An index NAME is two collections of the server: NAME with a row per descriptor, and NAME_images with a row per image.
The number of an image is a hash of its name, and the id of a descriptor is that number and the position of its
keypoint. So two writers that add the same image write the same rows, and a repeated request changes nothing. An image
has the checksum `PENDING` until all its descriptors are written, and `REMOVED` after a removal.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import ArgumentError, DataError, import_extra
from doap._support.files import parse_json
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import FeatureSet
from doap.collection.index.protocol import (
    REMOVED,
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
from doap.types import Kind, Progress, no_progress

FORMAT, PENDING = 1, "pending"
# A server that was killed answers again after about a minute.
_WAIT_SECONDS = 180
# Up to 2^17 keypoints per image; 46 bits are left for the number of the image.
_KEYPOINT_BITS = 17
_KEYS_PER_REQUEST = 5_000
# Milvus builds an index for each segment, with lists of its own. New segments had 220,000 rows.
_ROWS_PER_SEGMENT = 1 << 18
# Milvus's codes for a missing collection and for wrong parameters.
_PERMANENT = (100, 1100)


class MilvusIndex(DescriptorIndex):
    """An index in a Milvus server. It always searches the current state, with the changes of all writers.

    Args:
        uri: Address of the server, such as `http://host:19530`.
        name: Name of the index: letters, digits and underscores.

    Attributes:
        lists: Number of inverted lists of each segment of the server; 0 for a flat index.
    """

    def __init__(self, uri: str, name: str) -> None:
        self.name, self._rows, self._images = f"{name} at {uri}", name, f"{name}_images"
        self._client = _connect(uri, name)
        if not self._call("has_collection", self._images):
            raise DataError(f"{self.name}: no such index. Build it with doap index build.")
        description = self._call("describe_collection", name)["description"]
        meta = parse_json(description.encode(), self.name, "the metadata of an index")
        if (found := meta.get("format")) != FORMAT:
            raise DataError(f"{self.name}: not an index: expected format {FORMAT}, got {found!r}. Build it again.")
        self.extractor, self.lists = ExtractorInfo(**meta["extractor"]), int(meta["lists"])
        self._max_keypoints = int(meta["max_keypoints"])

    @classmethod
    def build(
        cls,
        uri: str,
        name: str,
        features: FeatureSet,
        *,
        kind: IndexKind | None = None,
        max_keypoints: int | None = None,
        progress: Progress = no_progress,
    ) -> MilvusIndex:
        """Create an index and add all images, as `build_index` does; `add` continues after a failure."""
        client, info = _connect(uri, name), features.extractor
        if client.has_collection(name):
            raise DataError(f"{name} at {uri}: already exists. Choose another name, or add to it with doap index add.")
        most = min(max_keypoints or info.max_keypoints, 1 << _KEYPOINT_BITS)
        lists = choose_lists(min(len(features) * most, _ROWS_PER_SEGMENT), info.kind, kind)
        meta = {"format": FORMAT, "lists": lists, "max_keypoints": most, "extractor": dataclasses.asdict(info)}
        _create(client, name, info.kind, info.dim, lists, description=json.dumps(meta))
        # Milvus 2 requires a vector in every collection. The other fields of an image are dynamic.
        _create(client, f"{name}_images", "binary", 8, 0, enable_dynamic_field=True)
        index = cls(uri, name)
        index.add(features, progress=progress)
        return index

    def __len__(self) -> int:
        return int(self._call("query", self._rows, output_fields=["count(*)"])[0]["count(*)"])

    def add(self, features: FeatureSet, *, progress: Progress = no_progress) -> IndexChange:
        check_extractor(self.name, self.extractor, features)
        located = self._locate(features.manifest["name"].to_pylist())
        known = {name: row.checksum for name, (_, row) in located.items() if row}
        change, names = plan_change(features, known)
        for done, image in enumerate(features.stream(names), start=1):
            progress(done, len(names), image.name)
            number, kept = located[image.name][0], image.features.strongest(self._max_keypoints)
            row = IndexedImage(image.name, image.checksum, len(kept))
            if image.name in known:
                self._delete(number)
            self._write_image(number, row._replace(checksum=PENDING))
            vectors = enumerate(_vectors(kept.descriptors.numpy()), start=number << _KEYPOINT_BITS)
            if data := [{"id": id_, "vector": vector} for id_, vector in vectors]:
                self._call("upsert", self._rows, data)
            self._write_image(number, row)
        return change

    def remove(self, names: Collection[str]) -> IndexChange:
        located = self._locate(names)
        if unknown := [name for name, (_, row) in located.items() if row is None or row.checksum == REMOVED]:
            raise ArgumentError(f"{unknown[0]}: expected the name of an image in {self.name}.")
        for name, (number, _) in located.items():
            self._delete(number)
            self._write_image(number, IndexedImage(name, REMOVED, 0))
        return IndexChange(removed=len(located))

    def search(
        self, descriptors: Tensor | NDArray[Any], k: int, *, probes: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        queries, binary = check_queries(self.extractor, descriptors), self.extractor.kind == "binary"
        settings = {"params": {"nprobe": check_probes(probes, self.lists)} if self.lists else {}}
        distances, ids = np.zeros((len(queries), k), np.float32), np.full((len(queries), k), -1, np.int64)
        data = _vectors(queries)
        found = self._call("search", self._rows, data=data, limit=k, search_params=settings) if data else []
        for row, hits in enumerate(found):
            ids[row, : len(hits)] = [hit["id"] for hit in hits]
            distances[row, : len(hits)] = [hit["distance"] for hit in hits]
        return distances.astype(np.int32) if binary else np.sqrt(np.maximum(distances, 0)), ids

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids >> _KEYPOINT_BITS

    def images_at(self, numbers: Iterable[int]) -> list[IndexedImage]:
        rows = self._read_images(wanted := list(numbers))
        return [rows[number] for number in wanted]

    def find(self, name: str) -> IndexedImage | None:
        _, row = self._locate([name])[name]
        return row if row and row.checksum != REMOVED else None

    def _locate(self, names: Collection[str], attempt: int = 0) -> dict[str, tuple[int, IndexedImage | None]]:
        """Return numbers and rows of images by name; no row for a new image. Names with equal hashes try again."""
        numbers = {name: _hash(name, attempt) for name in names}
        rows = self._read_images(list(numbers.values()))
        owners = {number: name for name, number in numbers.items()} | {number: row.name for number, row in rows.items()}
        located = {name: (number, rows.get(number)) for name, number in numbers.items() if owners[number] == name}
        others = numbers.keys() - located.keys()
        return located | self._locate(others, attempt + 1) if others else located

    def _read_images(self, numbers: Sequence[int]) -> dict[int, IndexedImage]:
        found, fields = {}, list(IndexedImage._fields)
        for start in range(0, len(numbers), _KEYS_PER_REQUEST):
            keys = list(numbers[start : start + _KEYS_PER_REQUEST])
            for row in self._call("get", self._images, ids=keys, output_fields=["id", *fields]):
                found[row["id"]] = IndexedImage(*(row[field] for field in fields))
        return found

    def _write_image(self, number: int, image: IndexedImage) -> None:
        self._call("upsert", self._images, [{"id": number, "vector": b"\0", **image._asdict()}])

    def _delete(self, number: int) -> None:
        first, end = number << _KEYPOINT_BITS, (number + 1) << _KEYPOINT_BITS
        self._call("delete", self._rows, filter=f"id >= {first} and id < {end}")

    def _call(self, request: str, *arguments: Any, **settings: Any) -> Any:
        """Return the answer to a request; repeat it while the server starts or loads."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                return getattr(self._client, request)(*arguments, timeout=_WAIT_SECONDS, **settings)
            except import_extra("pymilvus", "milvus").MilvusException as error:
                if error.code in _PERMANENT or time.monotonic() > deadline:
                    raise DataError(f"{self.name}: {request} failed: {error.message}") from error
            time.sleep(1)


def _connect(uri: str, name: str) -> Any:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", name):
        raise ArgumentError(f"{name}: expected a name of letters, digits and underscores for an index in Milvus.")
    pymilvus = import_extra("pymilvus", "milvus")
    # It would print a traceback for every request that is repeated.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    try:
        return pymilvus.MilvusClient(uri, timeout=10)
    except pymilvus.MilvusException as error:
        raise DataError(f"{uri}: no Milvus server answers. Start it, or check --uri. ({error.message})") from error


def _create(client: Any, name: str, kind: Kind, dim: int, lists: int, **schema: Any) -> None:
    """Create a collection of ids and vectors."""
    types, binary = import_extra("pymilvus", "milvus").DataType, kind == "binary"
    fields, index = client.create_schema(**schema), client.prepare_index_params()
    fields.add_field("id", types.INT64, is_primary=True)
    fields.add_field("vector", types.BINARY_VECTOR if binary else types.FLOAT_VECTOR, dim=dim)
    name_of_index, metric = (
        ("BIN_" if binary else "") + ("IVF_FLAT" if lists else "FLAT"),
        "HAMMING" if binary else "L2",
    )
    index.add_index("vector", index_type=name_of_index, metric_type=metric, params={"nlist": lists} if lists else {})
    client.create_collection(name, schema=fields, index_params=index, consistency_level="Strong")


def _vectors(rows: NDArray[Any]) -> list[Any]:
    """Return descriptors as Milvus takes them: bytes of bits, or arrays of floats."""
    return [row.tobytes() for row in rows] if rows.dtype == np.uint8 else list(rows)


def _hash(name: str, attempt: int) -> int:
    """Return a number of an image."""
    digest = hashlib.sha256(f"{name}\0{attempt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (_KEYPOINT_BITS + 1)
