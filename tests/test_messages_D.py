"""Messages of indexes that users meet most name the subject, the value and the remedy."""

import pytest

pytest.importorskip("faiss")

from doap._support.errors import DoapError
from doap.collection import ExtractorInfo, Index, MilvusIndex, build_index
from oracles.feature_sets import random_features, write_features

IMAGES = {"a.jpg": random_features(0, 5)}
OTHER = ExtractorInfo("other", "sift", "orb", 6.0, 2048, "real", 32, "float16")
MESSAGES = [
    (lambda folder: Index(folder / "nothing"), ["nothing: not an index", "doap index build"]),
    (lambda folder: build_index(folder / "features", folder / "index"), ["index: already exists", "doap index add"]),
    (lambda folder: Index(folder / "index").search(random_features(0, 1).descriptors, 9), ["1 to 5", "got 9"]),
    (
        lambda folder: Index(folder / "index").add(write_features(folder / "other", IMAGES, extractor=OTHER)),
        ["other: the features do not fit the index", "detector is 'orb' instead of 'sift'"],
    ),
    (lambda folder: MilvusIndex("http://127.0.0.1:1", "photos"), ["127.0.0.1:1: no Milvus server answers", "--uri"]),
]


@pytest.mark.parametrize(("call", "pieces"), MESSAGES, ids=[pieces[0] for _, pieces in MESSAGES])
def test_a_message_has_subject_value_and_remedy(call, pieces, tmp_path):
    build_index(write_features(tmp_path / "features", IMAGES), tmp_path / "index")
    with pytest.raises(DoapError) as failed:
        call(tmp_path)
    assert all(piece in str(failed.value) for piece in pieces)
