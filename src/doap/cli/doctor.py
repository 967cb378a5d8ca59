"""`doap doctor`: diagnose an installation: which libraries, devices, baselines and detectors work on this machine.

It runs when something is broken, so it never raises: each part is examined separately, and its failure is part of the
result. Optional libraries are not imported: importing takes seconds, and two copies of OpenMP abort the process.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import typer

import doap
from doap._support.errors import MissingExtra
from doap._support.opencv import complete_wheel, installed_wheels
from doap.cli.options import AsJson
from doap.cli.terminal import echo, echo_json

REQUIRED = ("torch", "numpy", "cv2", "pyarrow", "pydantic", "safetensors")
WORKS = "works"


def doctor(as_json: AsJson = False) -> None:
    """Print versions, devices and what works on this machine. Exits with 1 if a required library is broken."""
    # Some libraries print their problems to stdout, which is reserved for our own output.
    with redirect_stdout(sys.stderr):
        found = diagnose()
    if as_json:
        echo_json(found)
    else:
        for section, value in found.items():
            for name, part in (value if isinstance(value, dict) else {"": value}).items():
                echo(f"{section:9} {name:20} {_as_text(part)}")
        if found["broken"]:
            echo(f"doap needs {', '.join(found['broken'])}; reinstall doap.")
    raise typer.Exit(1 if found["broken"] else 0)


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{name} {version or 'missing'}" for name, version in value.items()]
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value or "none")


def diagnose() -> dict[str, Any]:
    """Return all findings as a JSON object; `broken` lists the required libraries that cannot be used."""
    required = {name: _attempt(lambda name: str(import_module(name).__version__), name) for name in REQUIRED}
    broken = [name for name, version in required.items() if version.startswith("broken")]
    works = {"contrib": _attempt(_has_contrib) is True, "windows": _attempt(_has_windows) is True}
    return {
        "versions": {"doap": doap.__version__, "python": platform.python_version(), **required},
        "platform": platform.platform(),
        "opencv": {**works, "wheels": installed_wheels()},
        "device": _attempt(_device),
        "extras": _attempt(_extras),
        "weights": sorted(path.stem for path in (Path(doap.__file__).parent / "weights").glob("*.safetensors")),
        "baselines": _attempt(_baselines),
        "detectors": _attempt(_detectors),
        "broken": broken,
        "warnings": _check_opencv(required["cv2"], **works),
    }


def _attempt(probe: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a probe returns, or the reason why it failed."""
    try:
        return probe(*arguments)
    except MissingExtra as error:
        return f"missing: {error}"
    # A half-installed library can fail with any exception.
    except Exception as error:
        return ": ".join(["broken", type(error).__name__, *str(error).strip().splitlines()[:1]])


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _extras() -> dict[str, dict[str, str | None]]:
    """Return the versions of the libraries of every extra, or of their builds for GPUs."""
    extras: dict[str, dict[str, str | None]] = {}
    for line in metadata.requires("doap") or []:
        found = re.match(r"([\w-]+).*extra == ['\"]([\w-]+)", line)
        if found and found[1] != "doap" and found[2] not in ("all", "dev", "docs"):
            gpu = found[1].removesuffix("-cpu") + "-gpu"
            extras.setdefault(found[2], {})[found[1]] = _installed(found[1]) or _installed(gpu)
    return extras


def _has_contrib() -> bool:
    """Check for a contrib function: other OpenCV packages leave an empty `xfeatures2d` module."""
    import cv2

    return hasattr(getattr(cv2, "xfeatures2d", None), "TEBLID_create")


def _has_windows() -> bool:
    """Check for the windows of `cv2.imshow`, which headless wheels lack."""
    import cv2

    return re.search(r"GUI: +NONE", cv2.getBuildInformation()) is None


def _device() -> dict[str, Any]:
    import torch

    from doap._support.device import multiplies_bfloat16, resolve_device

    device = resolve_device("auto")
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    fast = multiplies_bfloat16(device)
    return {"kind": device.type, "name": name, "threads": torch.get_num_threads(), "fast bfloat16": fast}


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


def _check_opencv(version: str, contrib: bool, windows: bool) -> list[str]:
    """Return how to repair OpenCV if it is broken, or if it lacks what a wheel had that another wheel has replaced."""
    if version.startswith("broken"):
        # Windows need libraries that servers lack, such as libGL.
        install = complete_wheel(windows="cannot open shared object" not in version)
        return [f"opencv: cv2 is {version}. Run `pip install {install}`."]
    wheels = installed_wheels()
    lost = ["contrib"] if not contrib and any("contrib" in name for name in wheels) else []
    lost += ["cv2.imshow"] if not windows and any("headless" not in name for name in wheels) else []
    if not lost:
        return []
    installed = f"{', '.join(wheels)} overwrite each other, and cv2 has lost {' and '.join(lost)}"
    return [f"opencv: {installed}. To get it back, run `pip install {complete_wheel()}`."]
