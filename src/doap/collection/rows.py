"""Write a feature set as a table with one row per descriptor, for databases and other programs that read Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from doap._support.files import new_folder
from doap.collection.features import FeatureSet, StoredImage, as_feature_set
from doap.types import Progress, no_progress

_BYTES_PER_FILE = 256 << 20


def export_rows(features: str | Path | FeatureSet, out: str | Path, *, progress: Progress = no_progress) -> int:
    """Write one row per descriptor as Parquet files of about 256 MB, and return the number of rows.

    The columns are `image` (name), `keypoint` (position in the image), and `code`: bytes of D bits, or a list of D
    floats.

    Args:
        features: Features of the images.
        out: Folder to create.
        progress: Called for every image.
    """
    features, out = as_feature_set(features), Path(out)
    with new_folder(out, "Delete it, or choose another folder.") as unfinished:
        tables: list[pa.Table] = []
        rows = files = 0
        for done, image in enumerate(features.stream(), start=1):
            progress(done, len(features), image.name)
            tables.append(_make_table(image))
            rows += len(tables[-1])
            if done == len(features) or sum(table.nbytes for table in tables) >= _BYTES_PER_FILE:
                # An open file, because Arrow takes a path with a colon for a URL.
                with (unfinished / f"rows-{files:06}.parquet").open("wb") as stream:
                    pq.write_table(pa.concat_tables(tables), stream, compression="zstd")
                tables, files = [], files + 1
    return rows


def _make_table(image: StoredImage) -> pa.Table:
    descriptors = image.features.descriptors.numpy()
    count, width = descriptors.shape
    values = pa.array(descriptors.ravel())
    if descriptors.dtype == np.uint8:
        codes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, values.buffers()[1]])
    else:
        codes = pa.FixedSizeListArray.from_arrays(values, width)
    return pa.table(
        {"image": pa.repeat(image.name, count), "keypoint": pa.array(np.arange(count, dtype=np.int32)), "code": codes}
    )
