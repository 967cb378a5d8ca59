"""A descriptor as one ONNX file, which any runtime of ONNX runs without doap and without torch."""

from __future__ import annotations

import copy
import logging
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, interpolate

from doap import __version__
from doap.baselines import OnnxDescriber
from doap.baselines.onnx import PREFIX
from doap.checks import check_shape
from doap.data.store import PatchSet
from doap.descriptor import Descriptor
from doap.errors import ArgumentError, DataError, MissingExtra
from doap.files import atomic_write, make_folder
from doap.functional import unpack_bits

OPSET = 18
"""The oldest that torch writes of itself; ONNX Runtime reads it since 1.14."""
TOLERANCE = 1e-4
"""How far a number may lie from torch's."""
LEAST_AGREEMENT = 0.9
"""With less of it, int8 has lost the descriptor."""
# Patches that the ranges of int8 are read from, and as many others that its loss is measured on.
_CALIBRATING = 1024
_BATCHES = (1, 7, 64)


@dataclass(frozen=True)
class Exported:
    """A file, and how near it is to the descriptor it was made of.

    Attributes:
        path: the file.
        opset: the version of ONNX's operators it needs.
        numbers: `float32` or `int8`, what the convolutions compute with.
        patches: how many were described by both.
        difference: the largest difference of a number, or the share of bits that differ.
        agreement: the mean cosine of both descriptors of a patch, or the share of bits that are equal.
    """

    path: Path
    opset: int
    numbers: str
    patches: int
    difference: float
    agreement: float


def write_onnx(descriptor: Descriptor, out: str | Path, *, calibration: PatchSet | None = None) -> Exported:
    """Write a descriptor as ONNX, if what ONNX Runtime makes of the file is what torch makes of the descriptor.

    The graph is all of `Descriptor.describe`: patches (N, 1, S, S) float32 in 0…1 of any number are standardised within
    it, and it gives unit rows (N, D) float32, or bits (N, D/8) uint8, packed. Metadata (`doap.extent`, `doap.kind`,
    `doap.licences`, …) tell what a graph cannot; `extent` is what patches must be cut by.

    Nothing is written unless made-up patches, 1, 7 and 64 at once, are described alike: numbers within 1e-4; bits equal
    but for those whose activation is within 1e-4 of zero, in units of the root mean square of all activations, for
    their signs are rounding's.

    int8 is smaller and not always faster; whether its descriptors are still worth as much only benchmarks tell:
    `doap eval FILE.onnx …` beside the descriptor itself. Only convolutions are quantised, each channel by itself, with
    seven of eight bits: processors without VNNI add two products in 16 bits, and eight would overflow there.

    Args:
        descriptor: to be exported; it is not changed.
        out: usually `*.onnx`, which is how `doap.load` knows it.
        calibration: patches to set the ranges of int8 by, as the descriptor will see them; float32 without.
    """
    out = make_folder(Path(out).parent) / Path(out).name
    if calibration is not None:
        check_shape(calibration.patches, f"N {descriptor.patch_size} {descriptor.patch_size}", name="calibration")
        if len(calibration.patches) < _BATCHES[-1]:
            count = len(calibration.patches)
            raise ArgumentError(f"calibration: expected {_BATCHES[-1]} patches or more, got {count}; give a larger set")
    # Only a file that was read again and judged gets to `out`.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "float32.onnx"
        _write_float32(descriptor, file)
        exported = _judge_float32(descriptor, file, out)
        if calibration is not None:
            precise, file = file, Path(folder) / "int8.onnx"
            spread = np.linspace(0, len(calibration.patches) - 1, 2 * _CALIBRATING).astype(np.int64)
            patches = torch.from_numpy(calibration.gather(np.unique(spread))).unsqueeze(1).float() / 255
            _write_int8(precise, file, patches[::2])
            exported = _judge_int8(descriptor, file, out, patches[1::2])
        with atomic_write(out) as unfinished:
            shutil.copyfile(file, unfinished)
    return exported


class _Graph(nn.Module):
    """`Descriptor.describe` in operations that ONNX has: it shifts no bytes, so bits are packed by a product."""

    places: Tensor

    def __init__(self, descriptor: Descriptor) -> None:
        super().__init__()
        self.descriptor = copy.deepcopy(descriptor).cpu().float().eval()
        # A column: OpenCV's DNN multiplies by nothing less than a matrix.
        self.register_buffer("places", 2.0 ** torch.arange(7, -1, -1).unsqueeze(1))

    def forward(self, patches: Tensor) -> Tensor:
        described: Tensor = self.descriptor(patches)
        if self.descriptor.kind == "real":
            return described
        packed: Tensor = (described > 0).float().unflatten(1, (-1, 8)) @ self.places
        return packed.flatten(1).to(torch.uint8)


def _write_float32(descriptor: Descriptor, path: Path) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401 - torch needs it
    except ImportError as error:
        raise MissingExtra("onnx and onnxscript", "export") from error
    # Of two patches: the exporter takes a batch of one for a batch that is always one.
    example = torch.zeros(2, 1, descriptor.patch_size, descriptor.patch_size)
    try:
        with _quiet():
            program = torch.onnx.export(
                _Graph(descriptor).eval(),
                (example,),
                dynamo=True,
                opset_version=OPSET,
                input_names=["patches"],
                output_names=["descriptors"],
                dynamic_shapes=({0: torch.export.Dim("N")},),
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ArgumentError(
            f"descriptor: expected a network that torch can export to ONNX, got one it cannot ({reason}); "
            "write it in operations that ONNX has"
        ) from error
    assert program is not None
    model = program.model_proto
    for node in model.graph.node:
        # Where the code lay on the machine that exported, line by line.
        del node.metadata_props[:]
    onnx.helper.set_model_props(model, _metadata(descriptor))
    onnx.save(model, path)


def _write_int8(precise: Path, path: Path, patches: Tensor) -> None:
    """Quantise the convolutions of a file by what they see of patches (N, 1, S, S)."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = iter(patches.split(64))

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            batch = next(self._batches, None)
            return None if batch is None else {"patches": batch.numpy()}

    model = onnx.load(precise)
    told = {one.key: one.value for one in model.metadata_props} | {f"{PREFIX}numbers": "int8"}
    # torch has folded the batch normalisations and told the shapes already, which is what it would warn about.
    add_pre_process_metadata(model)
    onnx.save(model, precise)
    quantize_static(
        precise,
        path,
        Reader(),
        per_channel=True,
        reduce_range=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["Conv"],
    )
    model = onnx.load(path)
    onnx.helper.set_model_props(model, told)
    onnx.save(model, path)


def _judge_float32(descriptor: Descriptor, file: Path, out: Path) -> Exported:
    """Refuse a file that differs; see `write_onnx` for the rule."""
    expected, found = _both(descriptor, file, made_up_patches(descriptor.patch_size), _BATCHES)
    exported = _compared(expected, found, descriptor, out, "float32")
    if descriptor.kind == "real":
        # Also true where one of them is not a number.
        wrong, rule = ~((found - expected).abs() < TOLERANCE), f"numbers within {TOLERANCE:g} of torch's"
    else:
        told_apart = expected.abs() >= TOLERANCE * expected.square().mean().sqrt()
        wrong, rule = told_apart & (found.bool() != (expected > 0)), "the same bits as torch's"
    if wrong.any():
        raise DataError(
            f"{out}: expected {rule}, got others in {int(wrong.sum())} of {wrong.numel()} places, "
            f"mean agreement {exported.agreement:.4f}; nothing was written: try other versions of torch and onnxruntime"
        )
    return exported


def _judge_int8(descriptor: Descriptor, file: Path, out: Path, patches: Tensor) -> Exported:
    """Tell what int8 loses, and refuse a file that has lost everything."""
    exported = _compared(*_both(descriptor, file, patches, (len(patches),)), descriptor, out, "int8")
    if not exported.agreement >= LEAST_AGREEMENT:
        raise DataError(
            f"{out}: expected int8 to agree with float32 by {LEAST_AGREEMENT} or more, got {exported.agreement:.3f}; "
            "nothing was written: calibrate with patches like those to be described, or keep float32"
        )
    return exported


def _both(descriptor: Descriptor, file: Path, patches: Tensor, batches: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """What torch and ONNX Runtime make of the first so many patches, for each of `batches`: both (n, D).

    Of bits, torch's are activations and the file's are 0 and 1.
    """
    exact, describer = _Graph(descriptor).descriptor, OnnxDescriber(file)
    with torch.no_grad():
        described = torch.cat([exact(some) for some in patches.split(_BATCHES[-1])])
    expected = torch.cat([described[:number] for number in batches])
    found = torch.cat([describer.describe(patches[:number]) for number in batches])
    return expected, found if descriptor.kind == "real" else unpack_bits(found)


def _compared(expected: Tensor, found: Tensor, descriptor: Descriptor, out: Path, numbers: str) -> Exported:
    if descriptor.kind == "real":
        difference = float((found - expected).abs().max())
        # A flat patch may give zeros, which have no direction.
        some = expected.any(dim=1)
        agreement = float(cosine_similarity(found[some], expected[some]).mean())
    else:
        difference = float((found.bool() != (expected > 0)).double().mean())
        agreement = 1 - difference
    return Exported(out, OPSET, numbers, len(found), difference, agreement)


def made_up_patches(size: int) -> Tensor:
    """66 patches (66, 1, size, size): two flat ones, others in whole grey levels, coarse to fine, bright to faint.

    The flat ones, one of them with a ripple far below a grey level, hold powers of two, whose mean is exact. Elsewhere
    its rounding would be all that is left of such a patch, and that differs from runtime to runtime.
    """
    generator = torch.Generator().manual_seed(0)
    contrast = torch.logspace(0, -1.5, 16).reshape(-1, 1, 1, 1)
    ripple = 2.0**-12 * (-1.0) ** torch.arange(size * size).reshape(1, 1, size, size)
    patches = [torch.full_like(ripple, 0.5), 0.5 + ripple]
    for cells in (2, 4, 8, 16):
        noise = torch.rand(len(contrast), 1, cells, cells, generator=generator)
        smooth = interpolate(noise, size=(size, size), mode="bicubic", align_corners=False).clamp(0, 1)
        patches.append((255 * (0.5 + contrast * (smooth - 0.5))).round() / 255)
    return torch.cat(patches)


def _metadata(descriptor: Descriptor) -> dict[str, str]:
    """What a graph cannot tell, as text, which is all that ONNX keeps."""
    rows = [row for row in descriptor.metadata.get("ledger", []) if isinstance(row, dict)]
    licences = Counter(str(row.get("licence", "not told")) for row in rows)
    told = {
        "kind": descriptor.kind,
        "dim": descriptor.dim,
        "patch_size": descriptor.patch_size,
        "extent": descriptor.extent,
        "network": descriptor.spec.network or type(descriptor.network).__name__,
        "numbers": "float32",
        "version": __version__,
        # Of the photographs it learned from.
        "licences": ", ".join(f"{number} {licence}" for licence, number in licences.most_common()),
    }
    return {PREFIX + key: str(value) for key, value in told.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own parts, and of libraries that are not needed here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
