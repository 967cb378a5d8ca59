"""`doap doctor`: what was found on this machine, what works, and what stands in the way.

It is run when things are broken, so nothing here may break: each part is looked at alone, and what goes wrong with it
is told in its place. Optional libraries are asked for their version and not imported, which would take seconds and, for
two that bring an OpenMP each, may end the process.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import doap
from doap.errors import MissingExtra
from doap.processes import tune_allocator

if TYPE_CHECKING:
    from rich.table import Table

NEEDED = ("torch", "numpy", "cv2", "pyarrow", "pydantic", "safetensors")
EXTRAS = {
    "colmap": ("pycolmap",),
    "eval": ("scipy",),
    "export": ("onnxscript",),
    "hloc": ("h5py",),
    "index": ("faiss-cpu", "faiss-gpu", "faiss"),
    "kornia": ("kornia",),
    "onnx": ("onnxruntime", "onnxruntime-gpu"),
    "plot": ("matplotlib",),
    "scale": ("ray",),
    "train": ("tensorboard",),
}
OPENCV_WHEELS = (
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)
# What /proc/cpuinfo calls them, on Intel, AMD and ARM.
INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx512f": "AVX512",
    "avx512_bf16": "AVX512-BF16",
    "amx_bf16": "AMX-BF16",
    "asimd": "NEON",
    "bf16": "NEON-BF16",
}
WORKS = "works"


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Say what was found on this machine. Exits with 1 if something that doap needs is missing or broken."""
    # Some libraries print what ails them, and on stdout there is to be JSON alone.
    with redirect_stdout(sys.stderr):
        found = examine()
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _show(found)
    raise typer.Exit(1 if found["broken"] else 0)


def examine() -> dict[str, Any]:
    """All findings, as JSON has them; `broken` names the libraries that doap cannot do without and does not get."""
    allocator = tune_allocator()
    needed = {name: _attempt(_version, name) for name in NEEDED}
    wheels = {name: version for name in OPENCV_WHEELS if (version := _installed(name))}
    contrib = _attempt(_has_contrib)
    found: dict[str, Any] = {
        "versions": {"doap": doap.__version__, "python": platform.python_version(), **needed},
        "platform": platform.platform(),
        "opencv": {"contrib": contrib is True, "wheels": wheels},
        "device": _attempt(_device),
        "instructions": _attempt(_instructions),
        "fast_bf16": _attempt(_is_bf16_fast),
        "allocator": allocator,
        "extras": {extra: _first_installed(names) for extra, names in EXTRAS.items()},
        "weights": sorted(path.stem for path in (Path(doap.__file__).parent / "weights").glob("*.safetensors")),
        "peers": _attempt(_peers),
        "detectors": _attempt(_detectors),
        "broken": [name for name, version in needed.items() if version.startswith("broken")],
    }
    return {**found, "warnings": _warnings(wheels, contrib is True, "cv2" in found["broken"])}


def _attempt(ask: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except MissingExtra as error:
        return f"missing: {error}"
    # Libraries that are half installed fail in every way there is.
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
    """Whether contrib is there; the function is asked for, since the module is there without it too, and empty."""
    import cv2

    return hasattr(getattr(cv2, "xfeatures2d", None), "TEBLID_create")


def _device() -> dict[str, Any]:
    import torch

    threads = torch.get_num_threads()
    if torch.cuda.is_available():
        return {"kind": "cuda", "name": torch.cuda.get_device_name(), "threads": threads}
    if torch.backends.mps.is_available():
        return {"kind": "mps", "name": platform.machine(), "threads": threads}
    name = _cpuinfo().get("model name") or platform.processor() or platform.machine()
    return {"kind": "cpu", "name": name, "threads": threads}


def _instructions() -> list[str]:
    info = _cpuinfo()
    flags = (info.get("flags") or info.get("Features", "")).split()
    if flags:
        return [name for flag, name in INSTRUCTIONS.items() if flag in flags]
    import torch

    # Where Linux does not tell: one word, the best that torch makes use of.
    return [torch.backends.cpu.get_cpu_capability()]


def _is_bf16_fast() -> bool:
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return any(name.endswith("BF16") for name in _instructions())


def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _peers() -> dict[str, str]:
    from doap.baselines import BASELINES
    from doap.describer import fingerprint

    def use(name: str) -> str:
        fingerprint(BASELINES[name]())
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


def _warnings(wheels: dict[str, str], contrib: bool, no_opencv: bool) -> list[str]:
    warnings = []
    if len(wheels) > 1:
        warnings.append(
            f"opencv: expected one package, got {', '.join(wheels)}, and the last to be installed hides the others; "
            "uninstall them all and install opencv-contrib-python-headless"
        )
    if not contrib and not no_opencv:
        warnings.append("opencv: expected contrib, got none; install opencv-contrib-python-headless in place of it")
    return warnings


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_table(found))
    for warning in found["warnings"]:
        console.print(f"[yellow]warning[/] {warning}", soft_wrap=True)
    if found["broken"]:
        console.print(f"[red]broken[/] doap needs {', '.join(found['broken'])}; install doap anew", soft_wrap=True)


def _table(found: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(style="bold")
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for section, rows in _sections(found).items():
        for number, (name, value) in enumerate(rows.items()):
            table.add_row("" if number else section, *_marked(name, value))
    return table


def _marked(name: str, value: Any) -> tuple[str, str, str]:
    from rich.markup import escape

    told = {True: "yes", False: "no", None: "none"}.get(value, str(value))
    mark = "[green]✓[/]" if value and not told.startswith("missing") else "[dim]–[/]"
    return "[red]✗[/]" if told.startswith("broken") else mark, name, escape(told)


def _sections(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The findings in rows, for people."""
    device, instructions = found["device"], found["instructions"]
    if isinstance(device, dict):
        device = f"{device['kind']}: {device['name']}, {device['threads']} threads"
    wheels = ", ".join(f"{name} {version}" for name, version in found["opencv"]["wheels"].items())
    return {
        "versions": {**found["versions"], "platform": found["platform"]},
        "opencv": {"contrib": found["opencv"]["contrib"], "package": wheels or None},
        "machine": {
            "device": device,
            "instructions": " ".join(instructions) if isinstance(instructions, list) else instructions,
            "fast bf16": found["fast_bf16"],
            "malloc of train": found["allocator"],
        },
        "extras": found["extras"],
        "weights": dict.fromkeys(found["weights"], "shipped") or {"shipped": None},
        **{
            part: found[part] if isinstance(found[part], dict) else {"all": found[part]}
            for part in ("peers", "detectors")
        },
    }
