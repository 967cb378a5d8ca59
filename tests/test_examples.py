"""The examples run unchanged and improve a descriptor."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["custom_loop.py", "third_party_loss.py"])
def test_training_improves_held_out_points(name, tmp_path):
    command = [sys.executable, "-W", "error", EXAMPLES / name]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    before, after = map(float, re.findall(r"0\.\d+", ran.stdout))
    assert after > 2 * before


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
