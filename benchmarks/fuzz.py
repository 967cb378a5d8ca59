"""Feed damaged files to every reader, and count how they end.

    python benchmarks/fuzz.py --seconds 60                          all formats, as in CI
    python benchmarks/fuzz.py --inputs 100000 --out results/fuzz.json
    python benchmarks/fuzz.py index --first 1234 --inputs 1         one input again, with its traceback

Every input is a valid sample in which one file is damaged. The seed, the format and the number of an input determine
it. A reader may accept an input (much damage is harmless, or cannot be detected) or refuse it with a `DoapError`. Every
other exception, the end of the process, and a reader that does not return are failures. They are saved in --failures,
and the exit code is 1.

Each format is read in its own process with limited memory, because a reader may crash or hang. The time to write the
samples is not part of --seconds. --out is written after every 1,000 inputs.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import record
import torch

from doap._support import processes
from doap._support.errors import DoapError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracles.file_samples import SAMPLES, Sample
from oracles.mutations import damage

# Memory that a process may use in addition to what it uses after the first, undamaged input.
MORE_BYTES = 2 << 30
# Inputs of a failing signature that are saved and repeated in the output.
SAVED = 3
# Time to write the undamaged sample and to read it.
SAMPLE_SECONDS = 300
# Inputs between two writes of the result.
INPUTS_PER_WRITE = 1000
OUTCOMES = ("accepted", "refused", "tracebacks", "crashes", "hangs")


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("formats", nargs="*", help="formats (default: all)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="maximum duration, shared by the formats",
    )
    parser.add_argument("--inputs", type=int, default=1 << 60, help="maximum number of inputs of each format")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--hang", type=float, default=60.0, help="seconds after which a reader counts as hanging")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="folder for failing inputs")
    options = parser.parse_args()
    if unknown := set(options.formats) - set(SAMPLES):
        parser.error(f"expected formats among {', '.join(SAMPLES)}, got {', '.join(sorted(unknown))}")
    if options.seconds == float("inf") and options.inputs == 1 << 60:
        parser.error("expected --seconds or --inputs")
    formats = options.formats or list(SAMPLES)
    figures: dict[str, dict[str, Any]] = {}
    failures = 0
    for name in formats:
        counts = Counter[str](dict.fromkeys(OUTCOMES, 0))
        signatures = Counter[str]()
        for _ in run_format(name, options.seconds / len(formats), counts, signatures, options):
            figures[name] = {"inputs": counts.total(), **counts, "failures": dict(signatures.most_common())}
            write(figures, options)
        failures += signatures.total()
        print(f"{name}: {json.dumps(figures.get(name), ensure_ascii=False)}", flush=True)
    sys.exit(int(failures > 0))


def write(figures: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """Write the result so far."""
    total = Counter[str]()
    for found in figures.values():
        total.update({key: value for key, value in found.items() if isinstance(value, int)})
    record.write(options.out, options.seed, {"total": total, "formats": figures})


def run_format(
    name: str, seconds: float, counts: Counter[str], signatures: Counter[str], options: argparse.Namespace
) -> Iterator[None]:
    """Count the outcomes of the inputs of one format, after those counted already; yield from time to time.

    After a process that ended, another one continues.
    """
    number, last = options.first + counts.total(), options.first + options.inputs
    with tempfile.TemporaryDirectory() as folder:
        while number < last and seconds > 0:
            for outcome, detail, taken in read_inputs(name, range(number, last), seconds, Path(folder), options):
                seconds -= taken
                counts[outcome] += 1
                if detail:
                    signatures[detail] += 1
                    if signatures[detail] <= SAVED:
                        save(name, number, Path(folder), detail, options)
                number += 1
                if number % INPUTS_PER_WRITE == 0:
                    yield
    yield


def read_inputs(
    name: str, numbers: range, seconds: float, folder: Path, options: argparse.Namespace
) -> Iterator[tuple[str, str, float]]:
    """Yield outcome, signature and seconds of each input until the process that reads them ends."""
    received, sent = multiprocessing.Pipe(duplex=False)
    # Forked before any library has started threads: importing the libraries takes longer than many formats get.
    arguments = (name, numbers, options.seed, folder, sent)
    process = multiprocessing.get_context("fork").Process(target=read_damaged, args=arguments)
    process.start()
    sent.close()
    try:
        await_sample(name, received, folder)
        start = before = time.monotonic()
        while before < start + seconds:
            if not received.poll(options.hang):
                yield "hangs", f"hang of more than {options.hang:.0f} s", options.hang
                return
            outcome, detail = received.recv()
            before, previous = time.monotonic(), before
            yield outcome, detail, before - previous
    except EOFError:
        process.join()
        if process.exitcode:
            yield "crashes", f"exit code {process.exitcode}", 1.0
    finally:
        process.kill()
        process.join()


def await_sample(name: str, received: Any, folder: Path) -> None:
    """Wait for the first message, which follows the undamaged sample."""
    if not received.poll(SAMPLE_SECONDS):
        raise SystemExit(f"{name}: the sample cannot be read in {SAMPLE_SECONDS} s")
    try:
        received.recv()
    except EOFError as error:
        raise SystemExit(f"{name}: the sample cannot be read: {(folder / 'stderr').read_text()}") from error


def read_damaged(name: str, numbers: range, seed: int, folder: Path, sent: Any) -> None:
    """Write the sample, then damage and read it; send one message before the first input, and one after each."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    processes._SECONDS = 5
    logging.disable()
    # Libraries in C print warnings about damaged files.
    os.dup2(os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sample, here, originals = SAMPLES[name], folder / "sample", folder / "original"
    for old in (here, originals):
        shutil.rmtree(old, ignore_errors=True)
    here.mkdir()
    sample.write(here)
    shutil.copytree(here, originals)
    sample.read(here)
    limit_memory()
    sent.send("ready")
    for number in numbers:
        file, content = damaged_input(name, number, originals, seed)
        (here / file).write_bytes(content)
        sent.send(outcome_of(sample, here))
        shutil.copyfile(originals / file, here / file)


def outcome_of(sample: Sample, folder: Path) -> tuple[str, str]:
    """Read a sample; return the outcome and the signature of a failure."""
    try:
        sample.read(folder)
    except DoapError:
        return "refused", ""
    except Exception as error:
        return "tracebacks", signature(error)
    return "accepted", ""


def limit_memory() -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_BYTES, used + MORE_BYTES))


def signature(error: BaseException) -> str:
    """Return the type of an exception and the last line of doap that it passed."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/src/doap/" in one.filename]
    where = f"{frames[-1].filename.partition('/src/')[2]}:{frames[-1].name}" if frames else "outside of doap"
    return f"{type(error).__name__} in {where}: {re.sub('[0-9]+', '0', str(error))[:60]}"


def damaged_input(name: str, number: int, originals: Path, seed: int) -> tuple[str, bytes]:
    """Return the file that input `number` damages, and its content; `originals` is the folder of the valid sample."""
    generator = random.Random(f"{seed} {name} {number}")
    path = SAMPLES[name].choose(originals, generator)
    file = path.relative_to(originals).as_posix()
    return file, damage(file, path.read_bytes(), generator)


def save(name: str, number: int, folder: Path, detail: str, options: argparse.Namespace) -> None:
    """Save a damaged file and the reason."""
    file, content = damaged_input(name, number, folder / "original", options.seed)
    out = options.failures / f"{name}-{number}"
    out.mkdir(parents=True, exist_ok=True)
    (out / Path(file).name).write_bytes(content)
    again = f"python benchmarks/fuzz.py {name!r} --seed {options.seed} --first {number} --inputs 1"
    (out / "reason.txt").write_text(f"{detail}\n{again}\n")


if __name__ == "__main__":
    main()
