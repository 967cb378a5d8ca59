"""Commands that are killed, or run twice at the same time, complete their output when they run again.

`benchmarks/faults.py` tests all writing commands with more faults and more moments.
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

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "faults.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and reads /proc")
def test_disturbed_commands_complete_their_output(tmp_path):
    words = ["extract", "index add", "--faults", "kill", "two", "--times", "2", "--out", tmp_path]
    ran = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kills, pairs = (json.loads((tmp_path / f"{fault}.json").read_text())["commands"] for fault in ("kill", "two"))
    assert set(kills) == set(pairs) == {"extract", "index add"}
    assert sum(found["kills"] for found in kills.values()) >= 2
    assert not any(found["problems"] for found in [*kills.values(), *pairs.values()])
