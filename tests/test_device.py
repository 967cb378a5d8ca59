"""Devices and precision: names, errors, and what `auto` selects."""

import pytest
import torch

from doap._support.device import resolve_device
from doap._support.errors import ArgumentError

CPU = torch.device("cpu")


def test_auto_prefers_cuda_then_mps_then_the_cpu(monkeypatch):
    available = {"cuda": True, "mps": True}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available["cuda"])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: available["mps"])
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(ArgumentError):
        resolve_device("cuda:2")
    available["cuda"] = False
    assert resolve_device("auto") == resolve_device("mps") == torch.device("mps")
    available["mps"] = False
    assert resolve_device("auto") == resolve_device("cpu") == resolve_device(CPU) == CPU


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps", "gpu", "cuda:", "cuda:x", "cpu:3", "meta", ""])
def test_an_unavailable_or_unknown_device_is_an_error(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ArgumentError):
        resolve_device(name)
