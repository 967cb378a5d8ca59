"""Messages that users meet most: the subject, what was expected and found, and the remedy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import doap
from doap.descriptor import Descriptor
from doap.types import Features

FRAMES = np.zeros((1, 2, 3), np.float32)


def features(fingerprint):
    return Features(FRAMES, np.ones(1, np.float32), torch.zeros(1, 8), (9, 9), fingerprint)


MESSAGES = {
    "no such descriptor": (
        lambda folder: doap.load("no-such-baseline"),
        ["no-such-baseline: expected one of", "doap-128", "rootsift", "*.safetensors", "module:function"],
    ),
    "weights of own code": (
        lambda folder: Descriptor.load(save(folder, "absent.package:Network")),
        ["absent.package:Network", "loading weights imports no code", "Import absent.package first", "network="],
    ),
    "later format": (
        lambda folder: Descriptor.load(save(folder, "l2net", change=('"format":1', '"format":7'))),
        ["d.safetensors: unknown format 7", "reads format 1", "Update doap"],
    ),
    "features of two descriptors": (
        lambda folder: doap.match(features("a"), features("b")),
        ["features0 and features1", "got features of two different ones", "with the same descriptor"],
    ),
    "no descriptor": (
        lambda folder: doap.extract(np.zeros((9, 9), np.uint8), torch.nn.Flatten()),
        ["descriptor: expected a name such as 'doap-128'", "got Flatten", "doap.Descriptor", "from_function"],
    ),
}


def save(folder, network, change=("", "")):
    """Write a file whose network or text is changed."""
    descriptor = Descriptor.build(dim=16)
    descriptor.spec = descriptor.spec.model_copy(update={"network": network})
    path = descriptor.save(folder / "d.safetensors")
    path.write_bytes(
        path.read_bytes().replace(change[0].replace('"', '\\"').encode(), change[1].replace('"', '\\"').encode())
    )
    return path


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_says_what_was_expected_and_how_to_fix_it(name, tmp_path):
    call, parts = MESSAGES[name]
    with pytest.raises(doap.DoapError) as raised:
        call(tmp_path)
    assert not [part for part in parts if part not in str(raised.value)], str(raised.value)
