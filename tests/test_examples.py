"""The examples run as they are, by themselves, and do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["own_loop.py", "their_loss.py"])
def test_a_few_steps_help_with_points_that_were_never_seen(name, tmp_path):
    command = [sys.executable, "-W", "error", EXAMPLES / name]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    before, after = map(float, re.findall(r"0\.\d+", ran.stdout))
    assert after > 2 * before


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
