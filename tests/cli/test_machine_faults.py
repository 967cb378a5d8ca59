"""Ctrl-C, too little memory and missing libraries are one line in every command."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from doap._support.errors import DataError, import_extra, is_out_of_memory
from oracles.forked import run_forked
from oracles.writing_commands import write_inputs

resource = pytest.importorskip("resource")
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    (folder / "heic").mkdir()
    (folder / "heic" / "0.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    return folder


def interrupt(*_, **__):
    """Send Ctrl-C to this process."""
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("words", "function"),
    [
        (("export", "fast.safetensors", "--out", "out.onnx"), "doap.export_descriptor"),
        (("data", "merge", "set", "set", "--out", "out"), "doap.data.merge_sets"),
        (("data", "split", "set", "a", "--out", "out"), "doap.data.split_set"),
        (("index", "info", "features"), "doap.collection.Index"),
    ],
)
def test_ctrl_c_is_one_line_in_commands_without_progress(doap, inputs, monkeypatch, words, function):
    monkeypatch.chdir(inputs)
    monkeypatch.setattr(function, interrupt)
    ran = doap(*words)
    assert (ran.returncode, ran.stderr) == (130, "Interrupted.\n")


def test_ctrl_c_while_libraries_are_imported_is_one_line():
    program = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from doap.__main__ import main\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (130, "Interrupted.\n")


LIMITED = """
import resource, sys
import doap.cli
size = 4096 * int(open("/proc/self/statm").read().split()[0]) + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
doap.cli.main()
"""


@on_linux
def test_too_little_memory_for_the_libraries_is_one_line(inputs, tmp_path):
    words = ("extract", inputs / "images", "--out", tmp_path / "out")
    ran = subprocess.run([sys.executable, "-c", LIMITED, *map(str, words)], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.splitlines()[1:]) == (1, [])
    assert ran.stderr.startswith("doap: Not enough memory. ")


FEW_FILES = """
import resource
import doap.cli
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
doap.cli.main()
"""


@pytest.mark.slow
def test_too_few_files_for_worker_processes_are_one_line(inputs, tmp_path):
    words = ("extract", inputs / "images", "--out", tmp_path / "out", "--workers", "2", "--descriptor", "rootsift")
    ran = subprocess.run([sys.executable, "-c", FEW_FILES, *map(str, words)], capture_output=True, text=True)
    expected = "doap: Too many open files. Use fewer workers, or raise the limit with `ulimit -n`.\n"
    assert (ran.returncode, ran.stderr) == (1, expected)


LIMIT = """
import resource, sys
import doap.cli, doap.data, doap.export.onnx
import torch
from doap._support.errors import is_out_of_memory
size = 4096 * int(open("/proc/self/statm").read().split()[0]) + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
"""
REACH_LIMIT = f"""{LIMIT}
blocks = []
try:
    while True:
        blocks.append(bytearray(16 << 20))
except MemoryError:
    blocks.clear()
"""


@on_linux
def test_too_little_memory_is_recognised_when_it_is_free_again():
    ran = run_forked(f"{REACH_LIMIT}print(is_out_of_memory(ImportError(\"cannot import name 'part'\")))")
    assert ran.stdout == "True\n", ran.stderr


EXPORT = """
class Unexportable(torch.nn.Module):
    def forward(self, patches):
        return torch.from_numpy(patches.flatten(1)[:, :16].numpy())

try:
    doap.export.onnx.write_onnx(doap.descriptor.Descriptor(Unexportable(), 16, "real"), sys.argv[1])
except Exception as error:
    print(isinstance(error, doap._support.errors.DoapError), is_out_of_memory(error))
"""


@on_linux
@pytest.mark.parametrize(("limit", "expected"), [("", "True False\n"), (REACH_LIMIT, "False True\n")])
def test_a_failed_export_blames_the_network_only_if_there_is_enough_memory(tmp_path, limit, expected):
    pytest.importorskip("onnxscript")
    imports = "import sys\nimport doap.descriptor, doap._support.errors, doap.export.onnx\nimport torch\n"
    imports += "from doap._support.errors import is_out_of_memory\n"
    assert run_forked(imports + limit + EXPORT, tmp_path / "a.onnx").stdout == expected


@on_linux
def test_patches_that_exceed_the_memory_are_not_reported_as_damaged(inputs, tmp_path):
    folder = shutil.copytree(inputs / "set", tmp_path / "set")
    np.lib.format.open_memmap(folder / "patches.npy", "w+", np.uint8, (1 << 20, 32, 32))
    ran = run_forked(f"{LIMIT}doap.cli.main()", "data", "preview", folder, "--out", tmp_path / "a.png")
    assert (ran.returncode, ran.stderr.splitlines()[1:]) == (1, [])
    assert ran.stderr.startswith("doap: Not enough memory. ")


def test_a_damaged_length_that_requests_memory_is_not_too_little_memory():
    error = DataError("index.faiss: damaged.")
    error.__cause__ = MemoryError("std::bad_alloc")
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_errors_of_libraries_about_memory_are_recognised(error):
    assert is_out_of_memory(error)
    wrapped = ValueError("cannot be read")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)


def test_the_causes_of_an_error_may_be_a_circle():
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    assert not is_out_of_memory(one)


@pytest.mark.parametrize("error", [ValueError("memory of 3 steps"), OSError(28, "No space left on device")])
def test_other_errors_are_not_about_memory(error):
    assert not is_out_of_memory(error)


def test_a_library_without_memory_to_load_is_not_reported_as_missing(tmp_path, monkeypatch):
    (tmp_path / "unloadable.py").write_text("raise ImportError('x.so: failed to map segment from shared object')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="failed to map segment"):
        import_extra("unloadable", "index")


MISSING = [
    ("pycolmap", "colmap", "colmap images --out out.db"),
    ("pycolmap", "colmap", "data from-images images --out out"),
    ("pycolmap", "colmap", "data from-colmap . images --out out"),
    ("pycolmap", "colmap", "match images/0.png images/1.png --detector colmap-default"),
    ("pycolmap", "colmap", "localize images/0.png --model . --images images --cache cache"),
    ("h5py", "hloc", "hloc images --out out.h5"),
    ("faiss", "index", "index build features --out out"),
    ("faiss", "index", "pairs features --out pairs.txt"),
    ("onnx", "export", "export fast.safetensors --out out.onnx"),
    ("onnxscript", "export", "export fast.safetensors --out out.onnx"),
    ("onnxruntime", "onnx", "export fast.safetensors --out out.onnx"),
    ("ray", "ray", "extract images --out out --engine ray --descriptor rootsift"),
    ("kornia", "kornia", "match images/0.png images/1.png --descriptor rootsift --detector affine"),
    ("kornia", "kornia", "match images/0.png images/1.png --descriptor rootsift --filter adalam"),
    ("pillow_heif", "heif", "match heic/0.heic images/1.png --descriptor rootsift"),
    ("poselib", "eval", "eval rootsift pose images --out out"),
]


@pytest.mark.parametrize(("missing", "extra", "command"), MISSING)
def test_a_missing_library_is_one_line_that_names_the_extra(
    doap, inputs, tmp_path, monkeypatch, missing, extra, command
):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    # Python raises ModuleNotFoundError for it, as for a library that is not installed.
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.chdir(tmp_path)
    first, *rest = command.split()
    words = [first, *(inputs / word if (inputs / word).exists() and word != "." else word for word in rest)]
    ran = doap(*words)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1), ran.stderr
    assert f"pip install 'doap[{extra}]'" in ran.stderr
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
