"""A descriptor: a network, the patches it wants, what it makes of them, and the file it is shipped in."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from doap import __version__
from doap.checks import check_choice, check_shape
from doap.errors import ArgumentError, DataError, ShapeError
from doap.files import atomic_write
from doap.functional import pack_bits
from doap.networks import NETWORKS
from doap.types import Kind

WEIGHTS = Path(__file__).with_name("weights")
SHIPPED: dict[str, Path] = {path.stem: path for path in sorted(WEIGHTS.glob("*.safetensors"))}
"""Descriptors that come with doap, by name; each has a card, NAME.md, beside its file."""
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Descriptor(nn.Module):
    """Patches in, descriptors out.

    As a module it is what is trained and exported: `descriptor(patches)` standardises and runs the network, with
    gradients. `describe` is for use.

    Args:
        network: any module (B, 1, S, S) → (B, D).
        patch_size: S.
        kind: `real` (unit vectors) or `binary` (signs of activations).
        metadata: what is written into the file beside the weights; `Descriptor.build` fills in how to build it again.
    """

    def __init__(
        self, network: nn.Module, patch_size: int, kind: Kind = "real", metadata: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        check_choice(kind, get_args(Kind), name="kind")
        # Convolutions are faster with the channels last, on CPUs as on GPUs.
        self.network: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.patch_size, self.kind = patch_size, kind
        self.metadata = metadata or {}
        self.dim = self._dim_of_network()

    @classmethod
    def build(cls, network: str = "l2net", kind: Kind = "real", **arguments: Any) -> Descriptor:
        """A descriptor with fresh weights, from the name of one of doap's networks.

        >>> Descriptor.build("l2net-st", kind="binary", dim=256).describe(torch.rand(3, 1, 42, 42)).shape
        torch.Size([3, 32])
        """
        check_choice(network, tuple(NETWORKS), name="network")
        module = NETWORKS[network](kind=kind, **arguments)
        recipe = {"network": network, "arguments": arguments}
        return cls(module, int(module.patch_size), kind, recipe)  # type: ignore[arg-type]

    @property
    def extent(self) -> float:
        """Side of the patches it wants over the side of a detector's frames, if its metadata say so; else 1."""
        return float(self.metadata.get("extent", 1.0))

    @property
    def precision(self) -> torch.dtype:
        """What `describe` lets the network compute in: float32, unless its metadata say `bfloat16`."""
        precision = self.metadata.get("precision", "float32")
        check_choice(precision, tuple(PRECISIONS), name="precision")
        return PRECISIONS[precision]

    def forward(self, patches: Tensor) -> Tensor:
        """(B, 1, S, S) in 0…1 → (B, D): unit rows, or activations of bits."""
        described: Tensor = self.network(standardise(patches))
        return described

    @torch.no_grad()
    def describe(self, patches: Tensor, batch: int | None = None) -> Tensor:
        """Describe any number of patches, in batches, without gradients and with the network in evaluation mode.

        Args:
            patches: (N, 1, S, S) floats in 0…1, on any device; N may be 0.
            batch: patches at a time; None is what suits the device.

        Returns:
            (N, D) float32, or (N, D/8) uint8 for a binary descriptor, on the network's device.
        """
        check_shape(patches, f"N 1 {self.patch_size} {self.patch_size}", name="patches")
        if not patches.is_floating_point():
            raise ArgumentError(f"patches: expected floats in 0…1, got {patches.dtype}; divide by 255")
        parameter = next(self.parameters(), patches)
        device = parameter.device
        # On a CPU the activations of a few patches stay in memory that malloc keeps; those of many are mapped anew.
        batch = batch or (128 if device.type == "cpu" else 4096)
        # Standardisation and unit length stay in float32. Who asks for nothing keeps an autocast of the caller's.
        cast = nullcontext() if self.precision is torch.float32 else torch.autocast(device.type, self.precision)
        training = self.training
        self.eval()
        with cast:
            parts = [self(part.to(device, parameter.dtype)) for part in patches.split(batch) if len(part)]
        self.train(training)
        described = torch.cat(parts).float() if parts else parameter.new_zeros(0, self.dim).float()
        return pack_bits(described) if self.kind == "binary" else described

    def save(self, path: str | Path, *, half: bool = False, **metadata: Any) -> Path:
        """Write weights and metadata as one safetensors file, whole or not at all.

        Args:
            path: usually `*.safetensors`.
            half: weights as float16, in half the space; they are float32 again when loaded.
            metadata: more to keep, such as the recipe and the ledger of the data; anything JSON can hold. Two change
                what a descriptor does: `extent`, and `precision="bfloat16"`, in which networks run several times as
                fast on processors that multiply it.
        """
        path = Path(path)
        header = {**self.metadata, **metadata}
        header |= {"patch_size": self.patch_size, "kind": self.kind, "dim": self.dim, "version": __version__}
        weights = {name: tensor.contiguous() for name, tensor in self.network.state_dict().items()}
        if half:
            weights = {
                name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in weights.items()
            }
        told = {"doap": json.dumps(header, sort_keys=True, separators=(",", ":"))}
        with atomic_write(path) as unfinished:
            # safetensors' own writer makes files that nobody else may read.
            unfinished.write_bytes(save(weights, metadata=told))
        return path

    def _dim_of_network(self) -> int:
        """D, found by describing one empty patch; also the check that the network is one of patches."""
        parameter = next(self.network.parameters(), torch.zeros(()))
        patch = torch.zeros(1, 1, self.patch_size, self.patch_size, device=parameter.device, dtype=parameter.dtype)
        training = self.network.training
        self.network.eval()
        with torch.no_grad():
            shape = self.network(patch).shape
        self.network.train(training)
        if len(shape) != 2 or shape[0] != 1:
            raise ShapeError(f"network: expected (1, D) for a patch {tuple(patch.shape)}, got {tuple(shape)}")
        if self.kind == "binary" and shape[1] % 8:
            raise ArgumentError(f"network: expected a multiple of 8 bits, got {shape[1]}")
        return int(shape[1])


def standardise(patches: Tensor) -> Tensor:
    """Each patch (B, 1, S, S) to mean 0 and deviation 1; a flat one becomes zeros, not amplified noise.

    Deviations under 1/1000 (a quarter of a grey level of 255) are taken for that.
    """
    centred = patches - patches.mean(dim=(1, 2, 3), keepdim=True)
    deviation = centred.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    return centred / deviation.clamp(min=1e-3)


def load(path: str | Path, network: nn.Module | None = None) -> Descriptor | Any:
    """A descriptor from its file, or one that comes with doap. Nothing is downloaded and no pickle is read.

    Args:
        path: a file that `Descriptor.save` wrote, a name in `SHIPPED` such as "doap-128", or an ONNX file (`*.onnx`).
        network: the module to put the weights into, for a network that is not one of doap's.

    Returns:
        A `Descriptor`; for an ONNX file an `OnnxDescriber`, which has the same face (`describe`, `kind`, `dim`,
        `patch_size`, `extent`) and no network. `Any` stands for it: few load one, and for them it need not be told.
    """
    if Path(path).suffix != ".onnx":
        return load_weights(path, network)
    from doap.baselines import OnnxDescriber

    if network is not None:
        raise ArgumentError(f"network: expected none beside an ONNX file, which has its own, got one for {path}")
    return OnnxDescriber(path)


def load_weights(path: str | Path, network: nn.Module | None = None) -> Descriptor:
    """As `load`, and always with a network: to train it further, or to export it."""
    path = SHIPPED.get(str(path)) or Path(path)
    if not path.is_file():
        raise DataError(
            f"{path}: expected a *.safetensors file or one of {', '.join(SHIPPED)}, got nothing there; check the path"
        )
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("doap", "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: expected a safetensors file of doap, got a damaged one ({error})") from error
    if header is None:
        raise DataError(f"{path}: expected doap's metadata beside the weights, got none; save it with Descriptor.save")
    if network is None:
        name = header.get("network")
        if name not in NETWORKS:
            raise DataError(f"{path}: network {name!r} is not one of doap's; give it as load(path, network=…)")
        descriptor = Descriptor.build(name, header["kind"], **header["arguments"])
    else:
        descriptor = Descriptor(network, header["patch_size"], header["kind"])
    try:
        descriptor.network.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(f"{path}: weights do not fit the network {header.get('network')!r}: {error}") from error
    descriptor.metadata = header
    return descriptor.eval()
