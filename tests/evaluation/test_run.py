"""Many descriptors on one benchmark: a result for each, and one that cannot does not stop the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from doap.baselines import rootsift, sift, teblid
from doap.describer import from_function
from doap.errors import ArgumentError
from doap.evaluation import evaluate, read_result
from doap.evaluation.result import Dataset, Estimate, Figure, Scores, read_gallery
from doap.files import sha256

PATCHES = np.random.default_rng(0).integers(0, 256, (6, 32, 32), dtype=np.uint8)


class Toy:
    """Its figure is the mean of the descriptors."""

    name, dataset, protocol = "toy", Dataset("six", "00" * 32), {"patches": 6}

    def judge(self, describe, seed):
        value = float(describe.patches(PATCHES).double().mean())
        return Scores((Figure("mean", "higher", "patches", Estimate(value, value, value, 6)),))


def refuses(patches):
    if len(patches) == 6:
        raise ArgumentError("patches: expected the photo, got patches; judge it on oxford")
    return patches.mean(dim=(2, 3))


def test_each_descriptor_leaves_a_result(tmp_path):
    evaluated = evaluate(Toy(), {"sift": sift(), "teblid": teblid()}, tmp_path, seed=4)
    assert evaluated.skipped == {}
    assert {name: path.relative_to(tmp_path).as_posix() for name, path in evaluated.results.items()} == {
        "sift": "toy-six/sift.json",
        "teblid": "toy-six/teblid.json",
    }
    real, bits = (read_result(evaluated.results[name]) for name in ("sift", "teblid"))
    assert (real.descriptor.bytes, bits.descriptor.bytes) == (512, 32)
    assert (real.benchmark, real.dataset.name, real.protocol, real.seed) == ("toy", "six", {"patches": 6}, 4)
    assert real.headline.total.value == float(sift().describe(torch.from_numpy(PATCHES)[:, None] / 255).double().mean())
    assert {"doap", "torch", "numpy", "opencv-contrib-python-headless"} <= set(real.versions)
    assert min(real.seconds.values()) >= 0
    assert read_gallery(evaluated.results["sift"]) is None


def test_one_that_cannot_is_skipped_with_its_reason(tmp_path):
    told = []
    evaluated = evaluate(
        Toy(), {"no": from_function(refuses), "sift": sift()}, tmp_path, progress=lambda *state: told.append(state)
    )
    assert evaluated.skipped == {"no": "patches: expected the photo, got patches; judge it on oxford"}
    assert list(evaluated.results) == ["sift"]
    assert told == [(0, 2, "no"), (1, 2, "sift"), (2, 2, "done")]


def test_an_error_that_is_not_ours_is_not_hidden(tmp_path):
    def broken(patches):
        return patches.mean(dim=(2, 3)) if len(patches) != 6 else 1 / 0

    with pytest.raises(ZeroDivisionError):
        evaluate(Toy(), {"broken": from_function(broken)}, tmp_path)


def test_the_file_of_a_descriptor_is_known_by_its_checksum(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"some weights")
    evaluated = evaluate(Toy(), {"my": rootsift(), "other": sift()}, tmp_path / "out", files={"my": file})
    assert read_result(evaluated.results["my"]).descriptor.file_sha256 == sha256(file)
    assert read_result(evaluated.results["other"]).descriptor.file_sha256 is None


def test_again_with_a_memory_nothing_is_described(tmp_path):
    first, again = (
        evaluate(Toy(), {"sift": sift()}, tmp_path / out, memory=tmp_path / "memory") for out in ("first", "again")
    )
    one, other = read_result(first.results["sift"]), read_result(again.results["sift"])
    assert one.figures == other.figures
    assert one.seconds["describe"] > 0
    assert other.seconds["describe"] == 0
