"""Wrong values on the command line end with one line or a usage message.

`benchmarks/wrong_arguments.py` tests all commands with more values.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pycolmap")
pytest.importorskip("h5py")
pytest.importorskip("faiss")
pytest.importorskip("onnxscript")
pytest.importorskip("scipy")

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "wrong_arguments.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and reads /proc")
def test_wrong_values_never_give_a_traceback(tmp_path):
    commands = ["match", "index remove"]
    words = [*commands, "--values", "5", "--out", tmp_path / "found.json"]
    ran = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads((tmp_path / "found.json").read_text())["commands"]
    assert list(found) == commands
    for one in found.values():
        assert one["runs"] >= 5
        assert one["one line"] + one["usage"] > one["runs"] / 2
