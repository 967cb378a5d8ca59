"""Messages that users meet most: what is wrong, and what to do."""

import sys

import pytest

import doap
from doap._support.errors import DoapError
from doap.collection import FeatureSet
from doap.detectors import as_detector
from doap.images import read_grey

CALLS = {
    "truncated": (lambda folder: read_grey(folder / "cut.png"), ["cut.png", "truncated", "Copy it again"]),
    "heic": (lambda folder: read_grey(folder / "a.heic"), ["a.heic", "pip install 'doap[heif]'"]),
    "detector": (lambda folder: as_detector("surf"), ["detector: expected one of sift", "surf"]),
    "images": (
        lambda folder: doap.extract_folder(folder / "none", folder / "out"),
        ["none: expected a folder of images", "does not exist"],
    ),
    "features": (lambda folder: FeatureSet(folder), ["not a feature set", "doap extract"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_message_names_the_fault_and_the_remedy(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "a.heic").write_bytes(b"\x00\x00\x00\x18ftypheic")
    call, parts = CALLS[name]
    with pytest.raises(DoapError) as caught:
        call(tmp_path)
    assert all(part in str(caught.value) for part in parts)
