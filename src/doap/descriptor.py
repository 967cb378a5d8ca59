"""`Descriptor`, a network with its `DescriptorSpec`, and `load` for descriptors and baselines."""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from doap import __version__
from doap._support.checks import MAX_DIM, MAX_PATCH_SIZE, check_choice, check_finite
from doap._support.device import DType, Precision, resolve_device, resolve_precision
from doap._support.errors import ArgumentError, DataError, ShapeError, import_extra
from doap._support.files import atomic_write, make_folder
from doap._support.plugins import registered
from doap._support.settings import StrictModel, explain, select
from doap.baselines import BASELINES, PIPELINES, SUFFIXES, OnnxDescriber, load_baseline
from doap.describer import (
    DEFAULT_RATIO,
    Describer,
    PatchDescriber,
    PatchFunction,
    check_patches,
    fixed_patches,
    from_function,
    hash_weights,
)
from doap.extractor import DescriptorSource, Extractor
from doap.metrics import pack_bits
from doap.networks import NETWORKS, PatchNetwork
from doap.networks.inference import for_inference
from doap.types import Kind

FORMAT = 1
"""Version of the metadata in a descriptor's file."""
WEIGHTS = Path(__file__).with_name("weights")
SHIPPED: dict[str, Path] = {path.stem: path for path in sorted(WEIGHTS.glob("*.safetensors"))}
"""Descriptors in the package, by name; the model card NAME.md is next to the file."""
HUB_WEIGHTS, HUB_CONFIG = "model.safetensors", "config.json"
"""File names of the Hugging Face Hub."""


class DescriptorSpec(StrictModel):
    """Network, input (N, 1, S, S) and output (N, D) of a descriptor, to check the metadata of a file."""

    network: str | None = Field(
        description="Name in `doap.networks.NETWORKS` or package.module:Class; None for any other network."
    )
    arguments: dict[str, Any] = Field(description="Settings of the network, for example its dropout rate.")
    patch_size: int = Field(ge=1, le=MAX_PATCH_SIZE, description="S, the side of a patch in pixels.")
    kind: Kind = Field(description="`real` for unit vectors, `binary` for bits.")
    dim: int = Field(ge=1, le=MAX_DIM, description="D, the number of dimensions or bits.")
    extent: float = Field(gt=0, description="Side of the patch, divided by the side of the detector's frame.")
    precision: DType = Field(description="Lowest precision without a measured loss of accuracy.")


class Descriptor(nn.Module, PatchDescriber):
    """A network that describes patches.

    `descriptor(patches)` standardises patches and runs the network, with gradients, for training and export.
    `describe_patches` and `describe`, for keypoints of an image, are for inference.

    >>> descriptor = Descriptor.build("l2net", dim=64)
    >>> descriptor(torch.rand(8, 1, 32, 32)).shape
    torch.Size([8, 64])

    Args:
        network: Any module that maps (B, 1, S, S) to (B, D). Use `Descriptor.build` for the
            networks of doap.
        patch_size: S.
        kind: `real` (unit vectors) or `binary` (the signs of the network's outputs are the bits).
        extent: Side of the patch, divided by the side of the detector's frame.

    Attributes:
        spec: The `DescriptorSpec`; its patch size, kind, width and extent are read from it.
        metadata: JSON values stored with the weights: the recipe, the ledger of the training data, the version of
            doap that wrote the file, and `ratio` if a threshold of the ratio test was selected for the descriptor.
        precision: Arithmetic of `describe_patches`: "auto" (bfloat16 if `spec.precision` allows it and the
            device has instructions for it), "float32" or "bfloat16".
    """

    def __init__(self, network: nn.Module, patch_size: int, kind: Kind = "real", *, extent: float = 1.0) -> None:
        super().__init__()
        check_choice(kind, get_args(Kind), name="kind")
        # Convolutions are faster with the channels last, on CPUs and GPUs.
        self.network: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        dim = _measure_dim(network, patch_size, kind)
        shape = {"patch_size": patch_size, "kind": kind, "dim": dim, "extent": extent}
        self.spec = DescriptorSpec.check(network=None, arguments={}, **shape, precision="float32")
        self.metadata: dict[str, Any] = {}
        self.precision: Precision = "auto"

    @classmethod
    def build(
        cls, network: str = "l2net", kind: Kind = "real", *, extent: float = 1.0, **settings: object
    ) -> Descriptor:
        """Create a descriptor with random weights.

        >>> Descriptor.build("l2net-st", kind="binary", dim=256).describe_patches(torch.rand(3, 1, 42, 42)).shape
        torch.Size([3, 32])

        Args:
            network: Name in `doap.networks.NETWORKS`, or your own subclass of `PatchNetwork` as
                "package.module:Class".
            kind: `real` or `binary`.
            extent: Side of the patch, divided by the side of the detector's frame.
            settings: Settings of the network, such as the width D; see `L2Net.Settings`.
        """
        check_choice(kind, get_args(Kind), name="kind")
        architecture = _select_network(network)
        arguments = architecture.Settings.check(**settings).model_dump()
        descriptor = cls(architecture(kind=kind, **arguments), architecture.patch_size, kind, extent=extent)
        descriptor.spec = descriptor.spec.model_copy(update={"network": network, "arguments": arguments})
        return descriptor

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        network: nn.Module | None = None,
        device: str | torch.device = "cpu",
        precision: Precision = "auto",
    ) -> Descriptor:
        """Load a descriptor with its network, for example to train or export it.

        `doap.load` also loads baselines and ONNX files.

        >>> Descriptor.load("doap-256bit").metadata["recipe"]["loss"]["name"]
        'listwise-ap'

        Args:
            path: File written by `Descriptor.save`, or the name of a shipped descriptor such as
                "doap-128".
            network: Module that receives the weights if the file's network is not one of doap's. A class
                that the file names as package.module:Class is used if you have already imported that
                module and it defines a `PatchNetwork` of this name: a file of weights never imports code.
            device: "auto", "cpu", "cuda", "cuda:N" or "mps".
            precision: Arithmetic of `describe_patches`: "auto", "float32" or "bfloat16".
        """
        target = resolve_device(device)
        check_choice(precision, get_args(Precision), name="precision")
        path = SHIPPED.get(str(path)) or Path(path)
        spec, metadata, weights = _read(path)
        try:
            _ratio_of(metadata)
            if network is None:
                descriptor = cls.build(_checked_network(spec, weights), spec.kind, **spec.arguments)
            else:
                _check_shapes(network.state_dict(), weights)
                descriptor = cls(network, spec.patch_size, spec.kind)
            if (descriptor.dim, descriptor.patch_size) != (spec.dim, spec.patch_size):
                raise ArgumentError(
                    f"expected a network with D = {spec.dim} and patches of {spec.patch_size} pixels, got "
                    f"D = {descriptor.dim} and {descriptor.patch_size} pixels."
                )
        except (ArgumentError, ShapeError) as error:
            raise DataError(f"{path}: {error}") from error
        descriptor.network.load_state_dict(weights)
        descriptor.spec, descriptor.metadata, descriptor.precision = spec, metadata, precision
        return descriptor.to(target).eval()

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None) -> Descriptor:
        """Load a descriptor from a folder that `save_pretrained` wrote, or from the Hugging Face Hub.

        `model.safetensors` is read as by `load`, and nothing else: `config.json` cannot change what is loaded.

        >>> Descriptor.from_pretrained("owner/name", revision="main")  # doctest: +SKIP

        Args:
            source: Folder; if there is none, the id of a repository on the Hub. Its file is downloaded once.
            revision: Branch, tag or commit on the Hub.
        """
        path = Path(source) / HUB_WEIGHTS
        if not path.parent.is_dir():
            download = import_extra("huggingface_hub", "hub").hf_hub_download
            try:
                path = download(str(source), HUB_WEIGHTS, revision=revision)
            except (OSError, ValueError) as error:
                reason = str(error).partition("\n")[0]
                raise DataError(
                    f"{source}: no such folder, and no descriptor on the Hugging Face Hub: {reason}"
                ) from error
        return cls.load(path)

    # The spec is the only home of these values.
    @property
    def patch_size(self) -> int:  # type: ignore[override]
        return self.spec.patch_size

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.spec.dim

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return self.spec.kind

    @property
    def extent(self) -> float:  # type: ignore[override]
        return self.spec.extent

    @property
    def ratio(self) -> float:  # type: ignore[override]
        return _ratio_of(self.metadata)

    def __repr__(self) -> str:
        network = self.spec.network or type(self.network).__name__
        settings = {**self.spec.model_dump(), "network": network}
        return f"Descriptor({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def forward(self, patches: Tensor) -> Tensor:
        """Map patches (B, 1, S, S) in 0…1 to unit vectors (B, D), or to activations of bits.

        Floats of another type than the weights are converted to theirs.
        """
        check_patches(patches, self.patch_size)
        dtype = next(self.parameters(), patches).dtype
        described: Tensor = self.network(standardise(patches).to(dtype))
        return described

    @torch.no_grad()
    def describe_patches(self, patches: Tensor) -> Tensor:
        """Describe any number of patches, in batches and without gradients.

        The network runs in evaluation mode. Its own mode and state do not change, so several threads may share a
        descriptor, even while it is being trained.

        Patches (N, 1, S, S) in 0…1, on any device, become (N, D) float32 or (N, D/8) uint8 on the network's device.
        """
        check_patches(patches, self.patch_size)
        parameter = next(self.parameters(), patches)
        device = parameter.device
        batch_size = getattr(self.network, "cpu_batch", PatchNetwork.cpu_batch) if device.type == "cpu" else 4096
        dtype = resolve_precision(self.precision, device, self.spec.precision)
        # Standardisation and unit length stay in float32. "auto" respects an autocast of the caller.
        unchanged = self.precision == "auto" and dtype == torch.float32
        cast = nullcontext() if unchanged else torch.autocast(device.type, dtype, enabled=dtype != torch.float32)
        network = for_inference(self)
        with cast:
            parts = [network(part.to(device, parameter.dtype)) for part in patches.split(batch_size) if len(part)]
        described = torch.cat(parts).float() if parts else parameter.new_zeros(0, self.dim).float()
        if self.kind == "binary":
            return pack_bits(described)
        check_finite(described, name="descriptors", remedy="Check the patches and the weights.")
        return described

    def fingerprint(self) -> str:
        """Return a checksum of what changes descriptors, the spec and the weights, but not device and precision."""
        spec = self.spec.model_dump(exclude={"precision"})
        digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode())
        hash_weights(digest, self.network.state_dict())
        if self.spec.network not in NETWORKS:
            # The spec does not contain the code of your own network, so its output is hashed too.
            reference = copy.deepcopy(self).cpu().float()
            reference.precision = "float32"
            digest.update(reference.describe_patches(fixed_patches(self.patch_size)).contiguous().numpy().data)
        return digest.hexdigest()

    def save(
        self,
        path: str | Path,
        *,
        half: bool = False,
        extent: float | None = None,
        precision: DType | None = None,
        **metadata: Any,
    ) -> Path:
        """Write weights and metadata to one safetensors file, atomically.

        Args:
            path: Usually `*.safetensors`.
            half: Store the weights as float16, in half the space; `load` converts them to float32.
            extent: Extent to write if it differs from that of this descriptor.
            precision: Write "bfloat16" if it was measured to lose no accuracy; "auto" then selects
                it on devices with instructions for it, where networks run several times as fast.
            metadata: More JSON values to store, such as `ratio`, the default threshold of the ratio test.
        """
        path = Path(path)
        changes = {"extent": extent, "precision": precision}
        given = {key: value for key, value in changes.items() if value is not None}
        spec = DescriptorSpec.check(**(self.spec.model_dump() | given)).model_dump()
        header = {**self.metadata, **metadata, "version": __version__, "format": FORMAT, "spec": spec}
        _ratio_of(header)
        weights = {name: tensor.cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        for name, tensor in weights.items():
            if half and tensor.is_floating_point():
                weights[name] = tensor = tensor.half()
            check_finite(tensor, name=f"weights {name}", remedy="Train again, at a lower learning rate.")
        stored = {"doap": json.dumps(header, sort_keys=True, separators=(",", ":"))}
        with atomic_write(path) as unfinished:
            # safetensors' own `save_file` creates files that only their owner may read.
            unfinished.write_bytes(save(weights, metadata=stored))
        return path

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write a folder for the Hugging Face Hub: `model.safetensors` as from `save`, and `config.json`, its spec."""
        folder = make_folder(Path(folder))
        self.save(folder / HUB_WEIGHTS)
        with atomic_write(folder / HUB_CONFIG) as unfinished:
            unfinished.write_text(self.spec.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return folder


def standardise(patches: Tensor) -> Tensor:
    """Scale each patch (B, 1, S, S) to mean 0 and standard deviation 1.

    Deviations below 1/1000 (a quarter of a grey level) count as 1/1000, so a flat patch becomes
    zeros, not amplified noise.
    """
    centred = patches - patches.mean(dim=(1, 2, 3), keepdim=True)
    deviation = centred.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    return centred / deviation.clamp(min=1e-3)


def load(
    source: str | Path, *, device: str | torch.device = "auto", precision: Precision = "auto"
) -> Describer | Extractor:
    """Load a descriptor, a baseline or a pipeline. Nothing is downloaded, and no pickled code is run.

    >>> load("rootsift").describe_patches(torch.rand(3, 1, 32, 32)).shape
    torch.Size([3, 128])

    Args:
        source: One of:

            - a shipped descriptor: "doap-128", "doap-256bit" or "doap-fast";
            - a baseline in `doap.baselines.BASELINES`, for example "rootsift";
            - a learned pipeline in `doap.baselines.PIPELINES`, for example "aliked-lightglue";
            - a name that an installed package adds as an entry point of `doap.descriptors`;
            - a file: `*.safetensors` written by `Descriptor.save`, `*.onnx`, or the published weights of a learned
              baseline (see `doap.baselines.weight_files`);
            - your own function of patches as "package.module:function" or "file.py:function", which is imported and
              run. Its attributes `patch_size`, `extent` and `ratio`, if it has them, replace 32, 1.0 and 0.9.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps". OpenCV and ONNX Runtime always run on the CPU.
        precision: "float32", "bfloat16", or "auto" for bfloat16 where it is fast and was measured to lose no accuracy.

    Returns:
        A `Descriptor` for `*.safetensors`; an `Extractor` for a pipeline and for COLMAP's own descriptors, which only
        describe the keypoints that they detect; another `Describer` otherwise.
    """
    name, path = str(source), Path(source)
    if name in SHIPPED or (not is_known(name) and path.is_file() and path.suffix not in (".onnx", *SUFFIXES)):
        return Descriptor.load(source, device=device, precision=precision)
    target = resolve_device(device)
    if name in BASELINES:
        return BASELINES[name]()
    if name in PIPELINES:
        return PIPELINES[name](target)
    if path.is_file():
        return OnnxDescriber(path) if path.suffix == ".onnx" else load_baseline(path, target)
    module, colon, function = name.rpartition(":")
    if colon and function.isidentifier():
        found = _import_function(module, function)
        try:
            shape = getattr(found, "patch_size", 32), function, getattr(found, "extent", 1.0)
            return from_function(found, *shape, getattr(found, "ratio", DEFAULT_RATIO))
        except (ArgumentError, ShapeError) as error:
            raise DataError(f"{module}: {error}") from error
    own: dict[str, Any] = {**SHIPPED, **BASELINES, **PIPELINES}
    try:
        create = registered(own, "descriptor", name)
    except ArgumentError as error:
        suffixes = ", ".join(f"*{suffix}" for suffix in (".safetensors", ".onnx", *SUFFIXES))
        raise DataError(f"{error}, which is neither an existing file ({suffixes}) nor module:function.") from error
    if not isinstance(described := create(), Describer | Extractor):
        raise DataError(f"{name}: expected a Describer or an Extractor, got {type(described).__name__}.")
    return described


def is_known(name: str) -> bool:
    """Return whether a name is that of a shipped descriptor, a baseline or a pipeline."""
    return name in SHIPPED or name in BASELINES or name in PIPELINES


def load_stored(name: str | None, path: str, device: str | torch.device = "auto") -> Describer | Extractor:
    """Load a descriptor that the file at `path` names, which must not choose the code or the weights that run.

    The name is None if the descriptor was given as an object.
    """
    if name is not None and is_known(name):
        return load(name, device=device)
    given = "none" if name is None else repr(name)
    raise DataError(
        f"{path}: expected the name of a descriptor or baseline of doap, got {given}. Files and code are not opened "
        "because another file names them. Pass yours with --descriptor (in Python, descriptor=)."
    )


def as_describer(descriptor: DescriptorSource, device: str | torch.device = "auto") -> Describer:
    """Load a describer of given keypoints on a device; return one that is an object unchanged."""
    given = load(descriptor, device=device) if isinstance(descriptor, str | Path) else descriptor
    if isinstance(given, Extractor):
        raise ArgumentError(
            f"descriptor: expected one that describes any keypoints, got {given.name}, which only describes the "
            "keypoints of its own detector. Use another descriptor."
        )
    if not isinstance(given, Describer) or isinstance(given, type):
        raise ArgumentError(
            f"descriptor: expected a name such as 'doap-128', a file or a Describer, got {type(given).__name__}. "
            "Wrap a network with doap.Descriptor, and a function with doap.describer.from_function."
        )
    return given


def _read(path: Path) -> tuple[DescriptorSpec, dict[str, Any], dict[str, Tensor]]:
    """Read and validate a file: its spec, its other metadata and its weights."""
    if not path.is_file():
        raise DataError(f"{path}: no such file. Expected a *.safetensors file or one of {', '.join(SHIPPED)}.")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("doap", "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    # Deeply nested metadata exceed the recursion limit, and torch lacks some types of safetensors.
    except (SafetensorError, ValueError, RecursionError, AttributeError, OSError) as error:
        raise DataError(f"{path}: not a safetensors file, or a damaged one ({error}).") from error
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{path}: the weights {name} contain NaN or infinity. Use another file.")
    ledger = header.get("ledger", []) if isinstance(header, dict) else None
    if not isinstance(ledger, list) or not all(isinstance(row, dict | str) for row in ledger) or "spec" not in header:
        raise DataError(f"{path}: not a doap descriptor (no spec in its metadata). Save it with Descriptor.save().")
    if (version := header.pop("format", None)) != FORMAT:
        raise DataError(f"{path}: unknown format {version}; this version of doap reads format {FORMAT}. Update doap.")
    try:
        return DescriptorSpec.model_validate(header.pop("spec")), header, weights
    except ValidationError as error:
        raise DataError(f"{path}: invalid spec: {explain(error, DescriptorSpec.model_fields)}") from error


def _ratio_of(metadata: Mapping[str, Any]) -> float:
    """Return the default threshold of the ratio test of a descriptor with this metadata."""
    ratio = metadata.get("ratio", DEFAULT_RATIO)
    if not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise ArgumentError(
            f"ratio: expected a number in (0, 1], got {ratio!r}. Save it with Descriptor.save(ratio=…)."
        )
    return ratio


def _checked_network(spec: DescriptorSpec, weights: Mapping[str, Tensor]) -> str:
    """Return the network that a file names. No code is imported, and no memory allocated for other weights."""
    module, colon, attribute = (spec.network or "").partition(":")
    if spec.network not in NETWORKS:
        if not colon:
            raise ArgumentError(
                f"network {spec.network!r} is not part of doap. Pass it as network= of Descriptor.load."
            )
        # An attribute that the module does not have yet could be imported by its `__getattr__`.
        if attribute not in getattr(sys.modules.get(module), "__dict__", ()):
            raise ArgumentError(
                f"the network {spec.network!r} is not part of doap, and loading weights imports no code. "
                f"Import {module} first, or pass the network as network= of Descriptor.load."
            )
    architecture = _select_network(str(spec.network))
    arguments = architecture.Settings.check(**spec.arguments).model_dump()
    with torch.device("meta"):
        _check_shapes(architecture(kind=spec.kind, **arguments).state_dict(), weights)
    return str(spec.network)


def _check_shapes(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Compare the names and shapes of weights with those of a network."""
    for name in sorted({*expected, *weights}):
        shapes = [tuple(tensors[name].shape) if name in tensors else None for tensors in (expected, weights)]
        if shapes[0] != shapes[1]:
            raise ArgumentError(
                f"the weights do not fit the network: expected {name} with shape {shapes[0]}, got {shapes[1]}."
            )


def _select_network(name: str) -> type[PatchNetwork]:
    """Return the network with a name in `NETWORKS`, or import the class package.module:Class."""
    try:
        architecture = select(NETWORKS, name, PatchNetwork)
    except ArgumentError as error:
        raise ArgumentError(f"network: {error}") from error
    if missing := [attribute for attribute in ("patch_size", "Settings") if not hasattr(architecture, attribute)]:
        raise ArgumentError(f"network: {name} lacks the attribute {missing[0]!r}; see `doap.networks.PatchNetwork`.")
    return architecture


def _measure_dim(network: nn.Module, patch_size: int, kind: Kind) -> int:
    """Check the shape of the network's output for one patch and return D, its width."""
    parameter = next(network.parameters(), torch.zeros(()))
    patch = torch.zeros(1, 1, patch_size, patch_size, device=parameter.device, dtype=parameter.dtype)
    with torch.no_grad():
        shape = for_inference(network)(patch).shape
    if len(shape) != 2 or shape[0] != 1:
        raise ShapeError(f"network: expected (1, D) for a patch {tuple(patch.shape)}, got {tuple(shape)}")
    if kind == "binary" and shape[1] % 8:
        raise ArgumentError(f"network: expected a multiple of 8 bits, got {shape[1]}")
    return int(shape[1])


def _import_function(module: str, name: str) -> PatchFunction:
    """Import a function from a module or a file; both run when they are imported."""
    try:
        if module.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(module).stem, module)
            assert spec is not None
            assert spec.loader is not None
            imported = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(imported)
        else:
            imported = importlib.import_module(module)
    # User code can raise anything.
    except Exception as error:
        raise DataError(
            f"{module}:{name}: the module cannot be imported ({type(error).__name__}: {error}). "
            "Name a function in a file as file.py:function."
        ) from error
    found: PatchFunction | None = getattr(imported, name, None)
    if not callable(found):
        raise DataError(f"{module}:{name}: expected a function of the module, got {found!r}. Check the name.")
    return found
