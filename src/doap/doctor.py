"""Diagnose an installation: which libraries, devices, baselines and detectors work on this machine.

`diagnose` runs when something is broken, so it never raises: each part is examined separately, and its failure is part
of the result. Optional libraries are not imported: importing takes seconds, and two copies of OpenMP abort the process.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import doap
from doap._support.errors import MissingExtra

REQUIRED = ("torch", "numpy", "cv2", "pyarrow", "pydantic", "safetensors")
EXTRAS = {
    "colmap": ("pycolmap",),
    "eval": ("scipy",),
    "examples": ("pytorch-metric-learning",),
    "export": ("onnxscript",),
    "heif": ("pillow-heif",),
    "hloc": ("h5py",),
    "index": ("faiss-cpu", "faiss-gpu", "faiss"),
    "kornia": ("kornia",),
    "milvus": ("pymilvus",),
    "onnx": ("onnxruntime", "onnxruntime-gpu"),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "train": ("tensorboard",),
}
OPENCV_WHEELS = (
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)
# Flags in /proc/cpuinfo of Intel, AMD and ARM processors, and the usual names of the instruction sets.
INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx512f": "AVX512",
    "avx512_bf16": "AVX512-BF16",
    "amx_bf16": "AMX-BF16",
    "asimd": "NEON",
    "bf16": "NEON-BF16",
}
WORKS = "works"


def diagnose() -> dict[str, Any]:
    """Return all findings as a JSON object; `broken` lists the required libraries that cannot be used."""
    required = {name: _attempt(_version, name) for name in REQUIRED}
    wheels = {name: version for name in OPENCV_WHEELS if (version := _installed(name))}
    contrib = _attempt(_has_contrib)
    found: dict[str, Any] = {
        "versions": {"doap": doap.__version__, "python": platform.python_version(), **required},
        "platform": platform.platform(),
        "opencv": {"contrib": contrib is True, "wheels": wheels},
        "device": _attempt(_device),
        "instructions": _attempt(_instructions),
        "fast_bf16": _attempt(_is_bf16_fast),
        "extras": {extra: _first_installed(names) for extra, names in EXTRAS.items()},
        "weights": sorted(path.stem for path in (Path(doap.__file__).parent / "weights").glob("*.safetensors")),
        "baselines": _attempt(_baselines),
        "detectors": _attempt(_detectors),
        "broken": [name for name, version in required.items() if version.startswith("broken")],
    }
    return {**found, "warnings": _warnings(wheels, contrib is True, "cv2" in found["broken"])}


def _attempt(probe: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a probe returns, or the reason why it failed."""
    try:
        return probe(*arguments)
    except MissingExtra as error:
        return f"missing: {error}"
    # A half-installed library can fail with any exception.
    except Exception as error:
        return f"broken: {_reason(error)}"


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _version(module: str) -> str:
    return str(import_module(module).__version__)


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _first_installed(distributions: tuple[str, ...]) -> str | None:
    return next((f"{name} {version}" for name in distributions if (version := _installed(name))), None)


def _has_contrib() -> bool:
    """Check for a contrib function: other OpenCV packages leave an empty `xfeatures2d` module."""
    import cv2

    return hasattr(getattr(cv2, "xfeatures2d", None), "TEBLID_create")


def _device() -> dict[str, Any]:
    import torch

    from doap._support.device import resolve_device

    kind = resolve_device("auto").type
    if kind == "cuda":
        name = torch.cuda.get_device_name()
    else:
        name = _cpuinfo().get("model name") or platform.processor() or platform.machine()
    return {"kind": kind, "name": name, "threads": torch.get_num_threads()}


def _instructions() -> list[str]:
    info = _cpuinfo()
    flags = (info.get("flags") or info.get("Features", "")).split()
    if flags:
        return [name for flag, name in INSTRUCTIONS.items() if flag in flags]
    import torch

    # Without /proc/cpuinfo: the best instruction set that torch uses.
    return [torch.backends.cpu.get_cpu_capability()]


def _is_bf16_fast() -> bool:
    from doap._support.device import multiplies_bfloat16, resolve_device

    return multiplies_bfloat16(resolve_device("auto"))


def _cpuinfo() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo; empty on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _baselines() -> dict[str, str]:
    from doap.baselines import BASELINES

    def use(name: str) -> str:
        BASELINES[name]().fingerprint()
        return WORKS

    return {name: _attempt(use, name) for name in BASELINES}


def _detectors() -> dict[str, str]:
    import numpy as np

    from doap.detectors import DETECTORS

    texture = np.random.default_rng(0).integers(0, 256, (16, 16), np.uint8).repeat(4, axis=0).repeat(4, axis=1)

    def use(name: str) -> str:
        DETECTORS[name]().detect(texture, 10)
        return WORKS

    return {name: _attempt(use, name) for name in DETECTORS}


def _warnings(wheels: dict[str, str], contrib: bool, opencv_broken: bool) -> list[str]:
    warnings = []
    if len(wheels) > 1:
        warnings.append(
            f"opencv: {', '.join(wheels)} are installed and overwrite each other. "
            "Uninstall all of them, then install opencv-contrib-python-headless."
        )
    if not contrib and not opencv_broken:
        warnings.append("opencv: the contrib modules are missing. Install opencv-contrib-python-headless instead.")
    return warnings
