"""A network learns the similarities of its teacher."""

import pytest
import torch

from doap._support.errors import DataError
from doap.descriptor import Descriptor
from doap.training import Config, read_log, train
from doap.training.step import similarity_difference


def config(patches, weight=5.0, **sections):
    base = {
        "data": {"train": patches, "batch_size": 64},
        "network": {"name": "fast", "dim": 16},
        "teacher": {"file": "doap-fast", "weight": weight},
        "schedule": {"steps": 30},
        "run": {"validate_every": 1000},
    }
    return Config.model_validate({**base, **sections})


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_difference_equals_the_mean_over_all_pairs(kind):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(5, 8, generator=generator)
    taught = torch.nn.functional.normalize(torch.randn(5, 3, generator=generator))
    rows = outputs.tanh() / 8**0.5 if kind == "binary" else torch.nn.functional.normalize(outputs)
    expected = sum((rows[i] @ rows[j] - taught[i] @ taught[j]) ** 2 for i in range(5) for j in range(5)) / 25
    torch.testing.assert_close(similarity_difference(outputs, taught, kind), expected)


def test_a_rotated_teacher_is_matched_perfectly():
    generator = torch.Generator().manual_seed(0)
    taught = torch.nn.functional.normalize(torch.randn(6, 4, generator=generator))
    rotation, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator))
    assert similarity_difference(3 * taught @ rotation, taught) < 1e-10


def test_the_ledger_names_the_photos_of_the_teacher(patches, tmp_path):
    best = train(config(patches, schedule={"steps": 1}), tmp_path)
    theirs = Descriptor.load("doap-fast").metadata["ledger"]
    ours = Descriptor.load(best).metadata["ledger"]
    assert theirs
    assert ours == theirs  # the set of synthetic photos has no ledger
    assert "map" not in next(event for event in read_log(tmp_path / "log.jsonl") if event["kind"] == "train")


def test_micro_batches_use_the_teacher(patches, tmp_path):
    train(config(patches, schedule={"steps": 2}, run={"micro_batch": 20, "validate_every": 2}), tmp_path)
    assert read_log(tmp_path / "log.jsonl")[-1]["kind"] == "end"


def test_a_binary_teacher_is_refused(patches, tmp_path):
    with pytest.raises(DataError):
        train(config(patches, teacher={"file": "doap-256bit"}), tmp_path)
