"""Results survive a round trip to disk, and damaged files are reported."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import numpy as np
import pytest

from doap.errors import DataError
from doap.evaluation.result import (
    Curve,
    Dataset,
    DescriptorInfo,
    Estimate,
    Figure,
    Gallery,
    Histogram,
    Result,
    gallery_path,
    read_gallery,
    read_result,
    write_result,
)

RESULT = Result(
    benchmark="oxford",
    protocol={"detector": "sift", "overlap": 0.4, "list": [1, 2]},
    dataset=Dataset("graf", "ab" * 32),
    descriptor=DescriptorInfo("my <net>", "real", 128, 512, "cd" * 32, None),
    figures=(
        Figure("mAP", "higher", "pairs of images", Estimate(0.5, 0.4, 0.6, 5), {"graf": Estimate(0.5, 0.4, 0.6, 5)}),
        Figure("FPR95", "lower", "pairs", Estimate(0.1, 0.05, 0.2, 100)),
    ),
    curves=(Curve("precision-recall", "recall", "precision", [(0.0, 1.0), (1.0, 0.5)]),),
    histogram=Histogram([0.0, 1.0, 2.0], [0.9, 0.1], [0.2, 0.8]),
    seed=3,
    date="2026-01-02",
    seconds={"describe": 1.5, "score": 2.0},
    versions={"doap": "0.1.0"},
)
GALLERY = Gallery(
    np.arange(2 * 2 * 9, dtype=np.uint8).reshape(2, 2, 3, 3),
    np.arange(27, dtype=np.uint8).reshape(1, 3, 3, 3),
    np.array([0.1, 0.2], np.float32),
    np.array([[0.5, 0.4]], np.float32),
)


@pytest.mark.parametrize("histogram", [RESULT.histogram, None])
def test_results_survive_a_round_trip(tmp_path, histogram):
    result = dataclasses.replace(RESULT, histogram=histogram)
    assert read_result(write_result(result, tmp_path / "r.json")) == result


def test_gallery_is_stored_beside_the_json(tmp_path):
    path = write_result(RESULT, tmp_path / "r.json", GALLERY)
    read = read_gallery(path)
    assert read is not None
    for part in dataclasses.fields(Gallery):
        assert np.array_equal(getattr(read, part.name), getattr(GALLERY, part.name))
    assert "best" not in json.loads(path.read_text())
    assert read_gallery(write_result(RESULT, tmp_path / "other.json")) is None


def test_resamples_are_stored_for_the_total_only(tmp_path):
    sampled = Estimate(0.5, 0.4, 0.6, 5, [0.45, 0.55])
    figure = Figure("mAP", "higher", "pairs of images", sampled, {"graf": sampled})
    read = read_result(write_result(dataclasses.replace(RESULT, figures=(figure,)), tmp_path / "r.json")).headline
    assert read.total.resampled == [0.45, 0.55]
    assert read.parts["graf"] == Estimate(0.5, 0.4, 0.6, 5)


def test_an_estimate_without_an_interval_is_valid_json(tmp_path):
    alone = Estimate(0.5, None, None, 2)
    figure = Figure("mAP", "higher", "scenes", alone, {"graf": alone})
    path = write_result(dataclasses.replace(RESULT, figures=(figure,)), tmp_path / "r.json")
    stored = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (stored["figures"][0]["total"]["low"], stored["figures"][0]["total"]["high"]) == (None, None)
    assert read_result(path).headline == figure


def test_figures_are_found_by_name():
    assert RESULT.headline.name == "mAP"
    assert RESULT.figure("FPR95").total.value == 0.1
    assert RESULT.figure("nothing") is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "another"}', json.dumps({"format": "doap result 1", "figures": []})],
    ids=["empty", "list", "no format", "another format", "fields missing"],
)
def test_a_file_that_is_no_result_is_named(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(DataError, match=r"r\.json: .*a result of `doap eval`"):
        read_result(tmp_path / "r.json")
    with pytest.raises(DataError, match=r"gone\.json"):
        read_result(tmp_path / "gone.json")


@pytest.mark.parametrize(("name", "value"), [("bytes", 0), ("bytes", -1), ("dim", 0)])
def test_a_descriptor_without_a_size_is_no_result(tmp_path, name, value):
    path = write_result(RESULT, tmp_path / "r.json")
    content = json.loads(path.read_text())
    content["descriptor"][name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"r\.json: .*{name}"):
        read_result(path)


def test_a_damaged_gallery_is_named(tmp_path):
    path = write_result(RESULT, tmp_path / "r.json", GALLERY)
    whole = gallery_path(path).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"no archive at all"):
        gallery_path(path).write_bytes(damaged)
        with pytest.raises(DataError, match=r"r\.npz: not the gallery of a result"):
            read_gallery(path)


def test_every_damaged_byte_of_a_gallery_is_accepted_or_named(tmp_path):
    """zlib and zipfile have errors of their own for damaged streams."""
    path = write_result(RESULT, tmp_path / "r.json", GALLERY)
    whole = gallery_path(path).read_bytes()
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        gallery_path(path).write_bytes(damaged)
        with contextlib.suppress(DataError):
            read_gallery(path)


@pytest.mark.parametrize(
    "change",
    [
        {"worst_distances": np.zeros((2, 2), np.float32)},
        {"best_distances": np.zeros((2, 1), np.float32)},
        {"best": np.zeros((2, 2, 3, 4), np.uint8)},
        {"worst": np.zeros((1, 3, 3, 3), np.float32)},
    ],
)
def test_a_gallery_of_other_shapes_is_named(tmp_path, change):
    path = write_result(RESULT, tmp_path / "r.json", dataclasses.replace(GALLERY, **change))
    with pytest.raises(DataError, match=r"r\.npz: not the gallery of a result"):
        read_gallery(path)
