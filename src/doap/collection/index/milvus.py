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
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import ArgumentError, DataError, import_extra
from doap._support.files import parse_json
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import FeatureSet, StoredImage
from doap.collection.index.plan import IndexKind, IndexPlan, plan_index
from doap.collection.index.protocol import (
    IndexChange,
    IndexedImage,
    check_extractor,
    check_probes,
    check_queries,
    plan_change,
)
from doap.types import Progress, no_progress

FORMAT = 1
PENDING, REMOVED = "pending", "removed"
WAIT_SECONDS = 180
"""How long a request is repeated. A server that was killed answers again after about a minute."""
# Up to 2^17 keypoints per image; 46 bits are left for the number of the image.
_KEYPOINT_BITS = 17
_ROWS_PER_REQUEST, _KEYS_PER_REQUEST = 20_000, 5_000
# Milvus builds an index for each segment, with lists of its own. New segments had 220,000 rows.
_ROWS_PER_SEGMENT = 1 << 18
# Milvus's codes for a missing collection and for wrong parameters.
_PERMANENT = (100, 1100)


class MilvusIndex:
    """An index in a Milvus server. It always searches the current state, with the changes of all writers.

    Args:
        uri: Address of the server, such as `http://host:19530`.
        name: Name of the index: letters, digits and underscores.

    Attributes:
        extractor: Identity and settings of the extractor of the features.
        plan: Kind and parameters.
    """

    def __init__(self, uri: str, name: str) -> None:
        self.name, self._collection, self._images = f"{name} at {uri}", name, f"{name}_images"
        self._client = _connect(uri, name)
        if not self._call("has_collection", self._images):
            raise DataError(f"{self.name}: no such index. Build it with doap index build.")
        described = self._call("describe_collection", name)
        self._types = {field["name"]: field["type"] for field in described["fields"]}
        meta = parse_json(described["description"].encode(), self.name, "the metadata of an index")
        if (found := meta.get("format")) != FORMAT:
            raise DataError(f"{self.name}: not an index: expected format {FORMAT}, got {found!r}. Build it again.")
        self.extractor, self.plan = ExtractorInfo(**meta["extractor"]), IndexPlan(**meta["index"])
        self._max_keypoints: int | None = meta["max_keypoints"]
        for collection in (self._collection, self._images):
            self._call("load_collection", collection)

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
        """Create an index and add all images of a feature set, as `build_index` does; `add` continues after a failure.

        `kind` is flat or ivf; None chooses it by the number of descriptors.
        """
        client, info = _connect(uri, name), features.extractor
        if kind == "ivf-pq":
            raise ArgumentError("kind: expected flat or ivf for Milvus, got ivf-pq.")
        if client.has_collection(name):
            raise DataError(f"{name} at {uri}: already exists. Choose another name, or add to it with doap index add.")
        total = len(features) * min(info.max_keypoints, max_keypoints or info.max_keypoints)
        plan = plan_index(min(total, _ROWS_PER_SEGMENT), info.kind, info.dim, kind)
        meta = {"format": FORMAT, "index": dataclasses.asdict(plan), "extractor": dataclasses.asdict(info)}
        _create(client, name, info, plan, json.dumps(meta | {"max_keypoints": max_keypoints}))
        index = cls(uri, name)
        index.add(features, progress=progress)
        return index

    def __len__(self) -> int:
        """Return the number of searchable descriptors."""
        return int(self._call("query", self._collection, output_fields=["count(*)"])[0]["count(*)"])

    def add(self, features: FeatureSet, *, progress: Progress = no_progress) -> IndexChange:
        """Add the images of a feature set that are not in the index yet, as `add_images` does."""
        check_extractor(self.name, self.extractor, features)
        located = self._locate({*features.names, *features.manifest["name"].to_pylist()})
        rows = {name: row.checksum for name, (_, row) in located.items() if row}
        removed = {name for name, checksum in rows.items() if checksum == REMOVED}
        change, names = plan_change(features, {name: rows[name] for name in rows.keys() - removed}, removed)
        group: list[tuple[int, StoredImage]] = []
        for done, image in enumerate(features.stream(names), start=1):
            progress(done, len(names), image.name)
            if image.name in rows:
                self._delete(located[image.name][0])
            strongest = image.features.strongest(self._max_keypoints)
            group.append((located[image.name][0], dataclasses.replace(image, features=strongest)))
            if done == len(names) or sum(len(one.features) for _, one in group) >= _ROWS_PER_REQUEST:
                self._write(group)
                group = []
        if names:
            self._call("flush", self._collection)
        return change

    def remove(self, names: Collection[str]) -> IndexChange:
        """Remove images permanently: searches do not return them, and they cannot be added again."""
        located = self._locate(names)
        for name, (_, row) in located.items():
            if row is None or row.checksum == REMOVED:
                reason = "it was removed before" if row else "no such image"
                raise ArgumentError(f"{name}: not in {self.name}: {reason}.")
        for number, row in located.values():
            self._delete(number)
            self._write_images([(number, row._replace(checksum=REMOVED))] if row else [])
        return IndexChange(removed=len(located))

    def search(
        self, descriptors: Tensor | NDArray[Any], k: int, *, probes: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Find the nearest descriptors of each query, as described for `DescriptorIndex`."""
        queries, binary = check_queries(self.extractor, descriptors), self.extractor.kind == "binary"
        check_probes(probes, self.plan.lists)
        settings = {"params": {"nprobe": probes or self.plan.probes} if self.plan.lists else {}}
        distances, ids = np.zeros((len(queries), k), np.float32), np.full((len(queries), k), -1, np.int64)
        data = _vectors(queries)
        found = self._call("search", self._collection, data=data, limit=k, search_params=settings) if data else []
        for row, hits in enumerate(found):
            ids[row, : len(hits)] = [hit["id"] for hit in hits]
            distances[row, : len(hits)] = [hit["distance"] for hit in hits]
        return distances.astype(np.int32) if binary else np.sqrt(np.maximum(distances, 0)), ids

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the images of descriptor ids of any shape; −1 for −1."""
        return ids >> _KEYPOINT_BITS

    def images_at(self, numbers: Iterable[int]) -> list[IndexedImage]:
        """Return images by number."""
        rows = self._read_images(wanted := list(numbers))
        return [rows[number] for number in wanted]

    def find(self, name: str) -> int | None:
        """Return the number of a searchable image; None if there is none of this name."""
        number, row = self._locate([name])[name]
        return number if row and row.checksum != REMOVED else None

    def frames(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read the frames (N, 2, 3) of descriptors with ids (N,)."""
        frames = {row["id"]: row["frame"] for row in self._get(self._collection, ids.tolist(), ["id", "frame"])}
        return np.array([frames[one] for one in ids.tolist()], np.float32).reshape(-1, 2, 3)

    def _locate(self, names: Collection[str], attempt: int = 0) -> dict[str, tuple[int, IndexedImage | None]]:
        """Return numbers and rows of images by name; no row for a new image. Names with equal hashes try again."""
        numbers = {name: _hash(name, attempt) for name in names}
        rows = self._read_images(list(numbers.values()))
        owners = {number: name for name, number in numbers.items()} | {number: row.name for number, row in rows.items()}
        located = {name: (number, rows.get(number)) for name, number in numbers.items() if owners[number] == name}
        others = numbers.keys() - located.keys()
        return located | self._locate(others, attempt + 1) if others else located

    def _read_images(self, numbers: Sequence[int]) -> dict[int, IndexedImage]:
        rows = self._get(self._images, numbers, ["number", *IndexedImage._fields])
        return {row["number"]: IndexedImage(*(row[field] for field in IndexedImage._fields)) for row in rows}

    def _get(self, collection: str, keys: Sequence[int], fields: Sequence[str]) -> Iterator[Any]:
        for start in range(0, len(keys), _KEYS_PER_REQUEST):
            block = list(keys[start : start + _KEYS_PER_REQUEST])
            yield from self._call("get", collection, ids=block, output_fields=fields)

    def _write(self, group: Sequence[tuple[int, StoredImage]]) -> None:
        """Write images that have no descriptors in the index."""
        rows = [(number, IndexedImage(one.name, one.checksum, len(one.features))) for number, one in group]
        if wide := [row.name for _, row in rows if row.descriptors > 1 << _KEYPOINT_BITS]:
            raise ArgumentError(f"{wide[0]}: expected at most {1 << _KEYPOINT_BITS:,} keypoints per image for Milvus.")
        self._write_images([(number, row._replace(checksum=PENDING)) for number, row in rows])
        descriptors = np.concatenate([one.features.descriptors.numpy() for _, one in group])
        ids = np.concatenate([(number << _KEYPOINT_BITS) + np.arange(len(one.features)) for number, one in group])
        frames = np.concatenate([one.features.frames.reshape(-1, 6) for _, one in group])
        columns = {"id": ids.tolist(), "descriptor": _vectors(descriptors), "frame": frames.tolist()}
        data = [{"name": name, "type": self._types[name], "values": values} for name, values in columns.items()]
        # Rows as dictionaries, the only way of the public client, take a multiple of the time.
        if len(ids):
            self._call("upsert", self._collection, data, client=self._client._get_connection())
        self._write_images(rows)

    def _write_images(self, rows: Sequence[tuple[int, IndexedImage]]) -> None:
        # Milvus 2 requires a vector in every collection.
        data = [{"number": number, **row._asdict(), "unused": b"\0"} for number, row in rows]
        self._call("upsert", self._images, data)

    def _delete(self, number: int) -> None:
        """Delete the descriptors of an image."""
        first, end = number << _KEYPOINT_BITS, (number + 1) << _KEYPOINT_BITS
        self._call("delete", self._collection, filter=f"id >= {first} and id < {end}")

    def _call(self, request: str, *arguments: Any, client: Any = None, **settings: Any) -> Any:
        """Return the answer to a request; repeat it while the server starts or loads."""
        error_type = import_extra("pymilvus", "milvus").MilvusException
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return getattr(client or self._client, request)(*arguments, timeout=WAIT_SECONDS, **settings)
            except error_type as error:
                if error.code in _PERMANENT or time.monotonic() > deadline:
                    raise DataError(f"{self.name}: {request} failed: {error.message}") from error
            time.sleep(1)


def _connect(uri: str, name: str) -> Any:
    """Return a client of a server."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", name):
        raise ArgumentError(f"{name}: expected a name of letters, digits and underscores for an index in Milvus.")
    pymilvus = import_extra("pymilvus", "milvus")
    # It would print a traceback for every request that is repeated.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    try:
        return pymilvus.MilvusClient(uri, timeout=10)
    except pymilvus.MilvusException as error:
        raise DataError(f"{uri}: no Milvus server answers. Start it, or check --uri. ({error.message})") from error


def _create(client: Any, name: str, info: ExtractorInfo, plan: IndexPlan, description: str) -> None:
    """Create both collections. That of the images completes the index."""
    types, binary = import_extra("pymilvus", "milvus").DataType, info.kind == "binary"
    own, images = client.create_schema(description=description), client.create_schema()
    own.add_field("id", types.INT64, is_primary=True)
    own.add_field("descriptor", types.BINARY_VECTOR if binary else types.FLOAT_VECTOR, dim=info.dim)
    own.add_field("frame", types.ARRAY, element_type=types.FLOAT, max_capacity=6)
    images.add_field("number", types.INT64, is_primary=True)
    images.add_field("name", types.VARCHAR, max_length=4096)
    images.add_field("checksum", types.VARCHAR, max_length=128)
    images.add_field("descriptors", types.INT64)
    images.add_field("unused", types.BINARY_VECTOR, dim=8)
    kind = ("BIN_" if binary else "") + ("IVF_FLAT" if plan.lists else "FLAT")
    lists = {"nlist": plan.lists} if plan.lists else {}
    for collection, schema, field, index, metric, parameters in (
        (name, own, "descriptor", kind, "HAMMING" if binary else "L2", lists),
        (f"{name}_images", images, "unused", "BIN_FLAT", "HAMMING", {}),
    ):
        settings = client.prepare_index_params()
        settings.add_index(field, index_type=index, metric_type=metric, params=parameters)
        client.create_collection(collection, schema=schema, index_params=settings, consistency_level="Strong")


def _vectors(rows: NDArray[Any]) -> list[Any]:
    """Return descriptors as Milvus takes them: bytes of bits, or arrays of floats."""
    return [row.tobytes() for row in rows] if rows.dtype == np.uint8 else list(rows)


def _hash(name: str, attempt: int) -> int:
    """Return a number of an image."""
    digest = hashlib.sha256(f"{name}\0{attempt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (_KEYPOINT_BITS + 1)
