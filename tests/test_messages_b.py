"""Messages that users meet most, in comparisons, reports and training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import doap
from doap._support.errors import DoapError
from doap.evaluation import write_report
from doap.training import Config, read_recipe, train
from oracles.photos import write_photo

MESSAGES: list[tuple[Callable[[Path], object], tuple[str, ...]]] = [
    (
        lambda folder: doap.compare(write_photo(folder / "0.png", 0), folder / "out"),
        ("photos: expected at least 6",),
    ),
    (lambda folder: write_report(folder, folder / "out"), ("no *.json file in this folder", "doap eval")),
    (lambda folder: read_recipe(folder / "none.toml"), ("none.toml: no such recipe", "recipes/")),
    (lambda folder: read_recipe(_recipe(folder)), ("loss: name: expected one of", "'none'")),
    (lambda folder: train(Config(schedule={"steps": 1}), folder / "run"), ("data.train: expected", "--data")),
]


def _recipe(folder: Path) -> Path:
    (folder / "r.toml").write_text("[loss]\nname = 'none'")
    return folder / "r.toml"


@pytest.mark.parametrize(("call", "pieces"), MESSAGES)
def test_a_message_names_what_is_wrong_and_what_to_do(
    tmp_path: Path, call: Callable[[Path], object], pieces: tuple[str, ...]
) -> None:
    with pytest.raises(DoapError) as raised:
        call(tmp_path)
    assert all(piece in str(raised.value) for piece in pieces)
