"""Devices and precision: names, errors, and what `auto` selects."""

from __future__ import annotations

import pytest
import torch

from doap._support.device import multiplies_bfloat16, resolve_device, resolve_precision
from doap._support.errors import ArgumentError

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["cpu", torch.device("cpu")])
def test_the_cpu_is_always_available(name):
    assert resolve_device(name) == CPU


def test_auto_prefers_cuda_then_mps_then_the_cpu(monkeypatch):
    available = {"cuda": True, "mps": True}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available["cuda"])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: available["mps"])
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(ArgumentError, match=r"device: cuda:2 does not exist; expected cuda:0 to cuda:1\."):
        resolve_device("cuda:2")
    available["cuda"] = False
    assert resolve_device("auto") == resolve_device("mps") == torch.device("mps")
    available["mps"] = False
    assert resolve_device("auto") == CPU


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps"])
def test_an_unavailable_device_is_an_error_with_a_remedy(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ArgumentError, match=rf"device: {name} is not available.* Use auto or cpu\."):
        resolve_device(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cpu:3", "meta", ""])
def test_an_unknown_device_is_an_error(name):
    with pytest.raises(ArgumentError, match="device: expected auto, cpu, cuda, cuda:N or mps, got"):
        resolve_device(name)


@pytest.mark.parametrize("supported", [True, False])
def test_auto_precision_needs_a_measurement_and_an_instruction(monkeypatch, supported):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: supported)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert multiplies_bfloat16(CPU) is supported
    assert resolve_precision("auto", CPU, "float32") == torch.float32
    assert resolve_precision("auto", CPU, "bfloat16") == (torch.bfloat16 if supported else torch.float32)


def test_a_given_precision_is_used():
    assert resolve_precision("float32", CPU, "bfloat16") == torch.float32
    assert resolve_precision("bfloat16", CPU, "float32") == torch.bfloat16
    with pytest.raises(ArgumentError, match="precision: expected one of auto, float32, bfloat16, got 'int3'"):
        resolve_precision("int3", CPU, "float32")


def test_bfloat16_is_not_assumed_on_other_devices():
    assert not multiplies_bfloat16(torch.device("mps"))
