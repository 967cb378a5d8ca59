"""Mutation testing: which small changes of the code do the tests notice?

    python benchmarks/mutation.py functional losses --mutants 100 --out results/mutation.json

Cosmic Ray (`pip install cosmic-ray`) proposes the mutants. A random sample of them is tested. Mutants that only change
annotations or docstrings are left out, because no test could notice them. A mutant is killed if a test fails or the
tests take more than three times as long as usual. Each mutant is tested in a fork of a process that has imported the
large libraries, on a copy of the source code, so commands that a test starts contain the mutant too.
"""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import record

ROOT = Path(__file__).resolve().parent.parent
# Code and tests of each target. The tests of the second list are slow: they run if the others pass.
TARGETS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "functional": (["functional"], ["functional"], ["losses/test_losses.py", "validation"]),
    "losses": (["losses"], ["losses/test_losses.py"], ["losses/test_ranks.py", "test_finite.py"]),
    "matching": (["matching"], ["matching"], ["test_pipeline.py"]),
    "evaluation": (
        [f"evaluation/{name}.py" for name in ("bootstrap", "homography", "image_pair", "overlap")],
        [f"evaluation/test_{name}.py" for name in ("bootstrap", "homography", "image_pair", "overlap")],
        ["evaluation/test_oxford.py", "evaluation/test_pose.py"],
    ),
    "export": (
        ["export"],
        ["export/test_opencv.py", "export/test_features.py", "export/test_hloc.py", "export/test_colmap.py"],
        ["export/test_colmap_resume.py", "export/test_onnx.py", "export/test_kornia.py", "export/test_exporters.py"],
    ),
}
# Tests of a mutant that runs into an endless loop are stopped after three times the usual time plus these seconds.
GRACE_SECONDS = 30


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("targets", nargs="+", choices=TARGETS, metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--mutants", type=int, default=100, help="mutants per target")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        sys.path.insert(0, str(source))
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        import_large_libraries()
        for target in options.targets:
            figures[target] = test_target(target, source / "doap", options.mutants, options.seed)
            record.write(options.out, options.seed, {"targets": figures})


def import_large_libraries() -> None:
    """Import what most tests need, once for all forks; nothing of doap."""
    import cv2  # noqa: F401
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch

    torch.set_num_threads(1)


def test_target(target: str, package: Path, number: int, seed: int) -> dict[str, Any]:
    """Test a sample of the mutants of a target."""
    code, tests, slow = TARGETS[target]
    paths = [package / name for name in code]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    originals = {file: file.read_text(encoding="utf-8") for file in files}
    mutants = [(file, *mutant) for file in files for mutant in find_mutants(originals[file])]
    usual = [timed(tests), timed(slow)]
    chosen = np.random.default_rng(seed).permutation(len(mutants))[:number]
    survivors, timeouts = [], 0
    for done, (file, operator, mutated) in enumerate((mutants[index] for index in chosen), start=1):
        file.write_text(mutated, encoding="utf-8")
        try:
            outcome = run(tests, 3 * usual[0] + GRACE_SECONDS)
            if outcome == "passed":
                outcome = run(slow, 3 * usual[1] + GRACE_SECONDS)
        finally:
            file.write_text(originals[file], encoding="utf-8")
        timeouts += outcome == "timeout"
        if outcome == "passed":
            name = str(file.relative_to(package))
            survivors.append({"file": name, "operator": operator, **first_change(originals[file], mutated)})
            print(survivors[-1], flush=True)
        print(f"{target}: {done - len(survivors)} of {done} killed", flush=True)
    return {
        "mutants": len(mutants),
        "tested": len(chosen),
        "killed": len(chosen) - len(survivors),
        "of these by time": timeouts,
        "survivors": survivors,
    }


def find_mutants(code: str) -> Iterator[tuple[str, str]]:
    """Yield the operator and the code of each mutant that differs in more than annotations and docstrings."""
    import cosmic_ray.plugins
    from cosmic_ray.mutating import mutate_code

    seen = {skeleton(code)}
    for name in cosmic_ray.plugins.operator_names():
        # These two operators need arguments that name variables.
        if name.startswith("core/Variable"):
            continue
        operator = cosmic_ray.plugins.get_operator(name)()
        occurrence = 0
        while (mutated := mutate_code(code, operator, occurrence)) is not None:
            occurrence += 1
            with contextlib.suppress(SyntaxError):
                tree = skeleton(mutated)
                if tree not in seen:
                    seen.add(tree)
                    yield name.removeprefix("core/"), mutated


def skeleton(code: str) -> str:
    """Return a text of the syntax tree without annotations and docstrings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return ast.dump(tree)


def first_change(original: str, mutated: str) -> dict[str, Any]:
    """Return the first line that differs."""
    for number, (old, new) in enumerate(zip(original.splitlines(), mutated.splitlines(), strict=False), start=1):
        if old != new:
            return {"line": number, "original": old.strip(), "mutated": new.strip()}
    return {"line": None}


def timed(tests: list[str]) -> float:
    """Return the usual time of some tests in seconds."""
    start = time.monotonic()
    if run(tests, 3600) != "passed":
        raise SystemExit(f"{' '.join(tests)}: the tests fail without a mutant.")
    return time.monotonic() - start


def run(tests: list[str], seconds: float) -> str:
    """Run tests in a fork of this process; return passed, failed or timeout."""
    child = os.fork()
    if child == 0:
        os.setsid()
        run_tests(tests)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def run_tests(tests: list[str]) -> None:
    """Run tests up to the first failure and exit, without any output."""
    import pytest

    code = 1
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        os.chdir(ROOT)
        paths = [f"tests/{name}" for name in tests]
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *paths]))
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
