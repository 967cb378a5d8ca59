"""Devices and precision: names, errors, and what `auto` selects."""

import pytest
import torch

from doap._support.device import multiplies_bfloat16, resolve_device, resolve_precision
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


@pytest.mark.parametrize("supported", [True, False])
def test_auto_precision_needs_a_measurement_and_an_instruction(monkeypatch, supported):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: supported)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert multiplies_bfloat16(CPU) is supported
    assert resolve_precision("auto", CPU, "float32") == torch.float32
    assert resolve_precision("auto", CPU, "bfloat16") == (torch.bfloat16 if supported else torch.float32)
