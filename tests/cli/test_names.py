"""What a user may type for a descriptor."""

from __future__ import annotations

import pytest
import torch

from doap.baselines import BASELINES
from doap.cli.names import open_descriptor, open_descriptors
from doap.descriptor import Descriptor
from doap.errors import DataError
from doap.evaluation.controls import CONTROLS

CODE = """
def mean(patches):
    return patches.mean(dim=(2, 3))

def large(patches):
    return patches.flatten(1)[:, :4]

large.patch_size = 64
number = 3
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def weights(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        Descriptor.build(dim=16).save(tmp_path / folder / "best.safetensors")
    return tmp_path


def test_peers_and_files_are_opened(weights):
    assert open_descriptor("teblid-512").dim == 512
    assert open_descriptor(str(weights / "a" / "best.safetensors")).dim == 16


def test_the_suffix_tells_what_a_file_is(tmp_path):
    for suffix, words in (
        (".onnx", "ONNX"),
        (".params", "TFeat"),
        (".safetensors", "safetensors"),
        (".x", "safetensors"),
    ):
        (tmp_path / f"damaged{suffix}").write_text("nothing of the kind")
        with pytest.raises(DataError, match=f"expected .*{words}"):
            open_descriptor(str(tmp_path / f"damaged{suffix}"))


def test_a_function_of_a_file_or_a_module_is_opened(code, monkeypatch):
    assert open_descriptor(f"{code}:mean").describe(torch.ones(2, 1, 32, 32)).tolist() == [[1.0], [1.0]]
    assert open_descriptor(f"{code}:large").patch_size == 64
    monkeypatch.syspath_prepend(code.parent)
    assert open_descriptor("own:mean").dim == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{code}:number", "expected a function of the module, got 3"),
        ("{code}:absent", "expected a function of the module, got None"),
        ("{code}x.py:mean", "expected a module to import, got FileNotFoundError"),
        ("no_such_module:mean", "got ModuleNotFoundError"),
        (":mean", "expected a module to import"),
        ("no-such-peer", "expected a file .*sift.*got none of them"),
        ("none.safetensors", "got none of them"),
    ],
)
def test_what_cannot_be_opened_is_told(code, text, words):
    with pytest.raises(DataError, match=words):
        open_descriptor(text.format(code=code))


def test_code_that_fails_is_told(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(DataError, match="got ZeroDivisionError: division by zero"):
        open_descriptor(f"{tmp_path / 'broken.py'}:mean")


def test_peers_and_controls_are_words_for_many():
    describers, files = open_descriptors(["sift", "peers", "controls"])
    assert list(describers) == list(dict.fromkeys(["sift", *BASELINES, *CONTROLS]))
    assert not files


def test_names_are_short_and_differ(weights, code):
    paths = [weights / folder / "best.safetensors" for folder in ("a", "b")]
    describers, files = open_descriptors([*map(str, paths), str(paths[0]), "orb", f"{code}:mean"])
    assert list(describers) == ["best", "best-2", "orb", "mean"]
    assert files == {"best": paths[0], "best-2": paths[1]}
