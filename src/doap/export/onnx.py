"""Export a descriptor to one ONNX file, which runs without doap and PyTorch."""

from __future__ import annotations

import copy
import logging
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, interpolate

from doap import __version__
from doap._support.checks import check_shape
from doap._support.errors import ArgumentError, DataError, import_extra, is_out_of_memory
from doap._support.files import OutputLock, atomic_write, make_folder
from doap._support.processes import interrupts_delayed
from doap.baselines import OnnxDescriber
from doap.baselines.onnx import PREFIX
from doap.data.store import PatchSet
from doap.descriptor import Descriptor
from doap.export import ExportSummary
from doap.metrics import unpack_bits

OPSET = 18
"""The oldest opset that torch's exporter writes directly; ONNX Runtime supports it since 1.14."""
TOLERANCE = 1e-4
"""Maximum difference from torch's output."""
MIN_AGREEMENT = 0.9
"""Minimum agreement of an int8 file with float32."""
# Number of patches that calibrate int8, and number of other patches that measure its loss.
_CALIBRATION_PATCHES = 1024
_BATCH_SIZES = (1, 7, 64)


def write_onnx(descriptor: Descriptor, out: str | Path, *, calibration: PatchSet | None = None) -> ExportSummary:
    """Write a descriptor as ONNX if the output of ONNX Runtime matches PyTorch.

    The graph contains all of `Descriptor.describe_patches`. It standardises patches (N, 1, S, S) float32 in 0…1, for
    any N, and returns unit vectors (N, D) float32 or packed bits (N, D/8) uint8. Metadata (`doap.extent`, `doap.kind`,
    `doap.licences`, …) hold what a graph cannot express; patches must be cut out with `extent`.

    The file is verified with synthetic patches in batches of 1, 7 and 64. Values must agree within 1e-4. Bits must be
    equal, except where rounding decides the sign: where the activation is within 1e-4 of zero, relative to the root
    mean square of all activations.

    An int8 file is smaller, but not always faster. Measure its accuracy with `doap eval FILE.onnx …`. Only convolutions
    are quantised, per channel and with seven of the eight bits, because processors without VNNI would overflow with
    eight.

    Args:
        descriptor: Descriptor to export; it is not modified.
        out: Usually `*.onnx`, the suffix that `doap.load` recognises.
        calibration: Patches that set the ranges of int8, similar to your own; None keeps float32.
    """
    out = make_folder(Path(out).parent) / Path(out).name
    if calibration is not None:
        check_shape(calibration.patches, f"N {descriptor.patch_size} {descriptor.patch_size}", name="calibration")
        if (count := len(calibration.patches)) < _BATCH_SIZES[-1]:
            raise ArgumentError(f"calibration: expected {_BATCH_SIZES[-1]} patches or more, got {count}.")
    # The file reaches `out` after verification.
    with OutputLock(out), tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "float32.onnx"
        _write_float32(descriptor, file)
        summary = _verify_float32(descriptor, file, out)
        if calibration is not None:
            precise, file = file, Path(folder) / "int8.onnx"
            spread = np.linspace(0, len(calibration.patches) - 1, 2 * _CALIBRATION_PATCHES).astype(np.int64)
            patches = torch.from_numpy(calibration.gather(np.unique(spread))).unsqueeze(1).float() / 255
            _write_int8(precise, file, patches[::2])
            summary = _verify_int8(descriptor, file, out, patches[1::2])
        with atomic_write(out) as unfinished:
            shutil.copyfile(file, unfinished)
    return summary


class _Graph(nn.Module):
    """`describe_patches` in operations that ONNX has: a matrix product packs bits, since ONNX cannot shift bytes."""

    bit_values: Tensor

    def __init__(self, descriptor: Descriptor) -> None:
        super().__init__()
        self.descriptor = copy.deepcopy(descriptor).cpu().float().eval()
        # A column, because OpenCV's DNN module requires a matrix.
        self.register_buffer("bit_values", 2.0 ** torch.arange(7, -1, -1).unsqueeze(1))

    def forward(self, patches: Tensor) -> Tensor:
        described: Tensor = self.descriptor(patches)
        if self.descriptor.kind == "real":
            return described
        packed: Tensor = (described > 0).float().unflatten(1, (-1, 8)) @ self.bit_values
        return packed.flatten(1).to(torch.uint8)


def _write_float32(descriptor: Descriptor, path: Path) -> None:
    onnx = import_extra("onnx", "export")
    # torch needs it.
    import_extra("onnxscript", "export")
    # Two patches, because the exporter would fix a batch size of one.
    example = torch.zeros(2, 1, descriptor.patch_size, descriptor.patch_size)
    try:
        # torch discards an interrupt while it imports its own modules, and then fails for another reason.
        with _quiet(), interrupts_delayed():
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
        # The exporter hides the error of a library that does not fit into memory.
        if is_out_of_memory(error):
            raise
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ArgumentError(
            f"descriptor: torch cannot export the network to ONNX ({reason}). Use operations that ONNX supports."
        ) from error
    assert program is not None
    model = program.model_proto
    for node in model.graph.node:
        # These contain source paths of the exporting machine.
        del node.metadata_props[:]
    onnx.helper.set_model_props(model, _make_metadata(descriptor))
    onnx.save(model, path)


def _write_int8(precise: Path, path: Path, patches: Tensor) -> None:
    """Quantise the convolutions of a file; patches (N, 1, S, S) calibrate their ranges."""
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
    metadata = {entry.key: entry.value for entry in model.metadata_props} | {f"{PREFIX}precision": "int8"}
    # Avoids a warning: torch has already folded batch normalisations and inferred shapes.
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
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, path)


def _verify_float32(descriptor: Descriptor, file: Path, out: Path) -> ExportSummary:
    """Refuse a file whose output differs; see `write_onnx` for the rule."""
    expected, found = _describe_with_both(descriptor, file, make_test_patches(descriptor.patch_size), _BATCH_SIZES)
    summary = _compare(expected, found, descriptor, out, "float32")
    if descriptor.kind == "real":
        # Also true for NaN.
        wrong, rule = ~((found - expected).abs() < TOLERANCE), f"values within {TOLERANCE:g} of PyTorch's"
    else:
        decided = expected.abs() >= TOLERANCE * expected.square().mean().sqrt()
        wrong, rule = decided & (found.bool() != (expected > 0)), "the same bits as PyTorch"
    if wrong.any():
        raise DataError(
            f"{out}: expected {rule}, but {int(wrong.sum())} of {wrong.numel()} differ (mean agreement "
            f"{summary.agreement:.4f}). Nothing was written. Try other versions of torch and onnxruntime."
        )
    return summary


def _verify_int8(descriptor: Descriptor, file: Path, out: Path, patches: Tensor) -> ExportSummary:
    """Measure the loss of int8, and refuse a file with a large one."""
    expected, found = _describe_with_both(descriptor, file, patches, (len(patches),))
    summary = _compare(expected, found, descriptor, out, "int8")
    if not summary.agreement >= MIN_AGREEMENT:
        raise DataError(
            f"{out}: expected int8 to agree with float32 by {MIN_AGREEMENT} or more, got {summary.agreement:.3f}. "
            "Nothing was written. Calibrate with patches similar to those to be described, or keep float32."
        )
    return summary


def _describe_with_both(
    descriptor: Descriptor, file: Path, patches: Tensor, batch_sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Describe the first patches with PyTorch and ONNX Runtime, once per batch size; return (n, D) and (n, D).

    For binary descriptors, PyTorch's values are activations and those of the file are 0 and 1.
    """
    reference, describer = _Graph(descriptor).descriptor, OnnxDescriber(file)
    with torch.no_grad():
        described = torch.cat([reference(batch) for batch in patches.split(_BATCH_SIZES[-1])])
    expected = torch.cat([described[:size] for size in batch_sizes])
    found = torch.cat([describer.describe_patches(patches[:size]) for size in batch_sizes])
    return expected, found if descriptor.kind == "real" else unpack_bits(found)


def _compare(expected: Tensor, found: Tensor, descriptor: Descriptor, out: Path, precision: str) -> ExportSummary:
    if descriptor.kind == "real":
        difference = float((found - expected).abs().max())
        # A flat patch may give zeros, which have no direction.
        nonzero = expected.any(dim=1)
        agreement = float(cosine_similarity(found[nonzero], expected[nonzero]).mean())
    else:
        difference = float((found.bool() != (expected > 0)).double().mean())
        agreement = 1 - difference
    return ExportSummary(out, OPSET, precision, len(found), difference, agreement)


def make_test_patches(size: int) -> Tensor:
    """Return 66 synthetic patches (66, 1, S, S): two flat ones, and smooth noise at four scales and 16 contrasts.

    All but the flat ones consist of whole grey levels. The flat ones, one of them with a ripple far below a grey level,
    consist of powers of two, whose mean is exact. Otherwise standardisation would amplify the rounding of the mean,
    which differs between runtimes.
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


def _make_metadata(descriptor: Descriptor) -> dict[str, str]:
    """Return the metadata of a file; ONNX stores text only."""
    rows = [row for row in descriptor.metadata.get("ledger", []) if isinstance(row, dict)]
    licences = Counter(str(row.get("licence", "unknown")) for row in rows)
    metadata = {
        "kind": descriptor.kind,
        "dim": descriptor.dim,
        "patch_size": descriptor.patch_size,
        "extent": descriptor.extent,
        "ratio": descriptor.ratio,
        "network": descriptor.spec.network or type(descriptor.network).__name__,
        "precision": "float32",
        "version": __version__,
        # Number of training photographs per licence.
        "licences": ", ".join(f"{number} {licence}" for licence, number in licences.most_common()),
    }
    return {PREFIX + key: str(value) for key, value in metadata.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's warnings about its own internals and about libraries that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
