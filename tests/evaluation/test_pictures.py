"""Pictures of image pairs: colours, sizes and the file beside the result."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError, ShapeError
from doap.evaluation.pictures import (
    LONGEST_SIDE,
    MAX_MATCHES,
    Picture,
    draw_pair,
    read_pictures,
    write_pictures,
)

GREY = np.full((300, 500), 120, np.uint8)


def pixels(picture: Picture) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(picture.jpeg, np.uint8), cv2.IMREAD_COLOR).astype(int)


def matches(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return matches on horizontal lines."""
    y = np.linspace(10, 290, count) if count else np.zeros(0)
    return np.column_stack([np.full(count, 250.0), y]), np.column_stack([np.full(count, 250.0), y])


@pytest.mark.parametrize(("correct", "channel"), [(True, 1), (False, 2)])
def test_correct_matches_are_green_and_wrong_ones_red(correct, channel):
    picture = pixels(draw_pair("pair", "", (GREY, GREY), *matches(9), np.full(9, correct)))
    excess = picture[..., channel] - picture.max(axis=2, initial=0, where=np.arange(3) != channel)
    assert (excess > 15).sum() > 500
    other = 3 - channel
    excess = picture[..., other] - picture.max(axis=2, initial=0, where=np.arange(3) != other)
    # The colours of JPEG have half the resolution.
    assert (excess > 15).sum() < 100


def test_pictures_are_small_and_images_keep_their_proportions():
    picture = pixels(draw_pair("pair", "", (GREY, np.zeros((2000, 1000), np.uint8)), *matches(0), np.zeros(0, bool)))
    assert picture.shape[0] <= LONGEST_SIDE + 30
    assert picture.shape[1] <= 2 * LONGEST_SIDE + 40


def test_at_most_150_evenly_spaced_matches_are_drawn():
    few, many = (pixels(draw_pair("", "", (GREY, GREY), *matches(count), np.ones(count, bool))) for count in (150, 900))
    assert MAX_MATCHES == 150
    # The lines of 900 matches would be fainter.
    assert abs(few[..., 1].mean() - many[..., 1].mean()) < 1
    green = (many[..., 1] - many[..., 2] > 40).any(axis=1)
    assert green[: len(green) // 4].any()
    assert green[-len(green) // 4 :].any()


def test_matches_of_different_lengths_are_refused():
    with pytest.raises(ShapeError, match="xy1"):
        draw_pair("", "", (GREY, GREY), np.zeros((3, 2)), np.zeros((2, 2)), np.ones(3, bool))
    with pytest.raises(ShapeError, match="correct"):
        draw_pair("", "", (GREY, GREY), np.zeros((3, 2)), np.zeros((3, 2)), np.ones(2, bool))


def test_pictures_are_stored_beside_the_json(tmp_path):
    shown = (Picture("ä <b>", "3 of 4", b"\xff\xd8one"), Picture("second", "", b"\x00two\x00"))
    assert write_pictures(shown, tmp_path / "r.json", "my.net") == tmp_path / "r" / "my.net.pictures.npz"
    assert read_pictures(tmp_path / "r.json", "my.net") == shown
    assert read_pictures(tmp_path / "r.json", "other") == ()


def test_damaged_pictures_are_named(tmp_path):
    path = tmp_path / "r.json"
    file = write_pictures([Picture("one", "", bytes(1000))], path, "sift")
    whole = file.read_bytes()
    for damaged in (b"", whole[:300], b"no archive"):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"sift\.pictures\.npz: not the pictures of a result"):
            read_pictures(path, "sift")
    np.savez(file, titles=np.array(["one"]))
    with pytest.raises(DataError, match=r"sift\.pictures\.npz"):
        read_pictures(path, "sift")
