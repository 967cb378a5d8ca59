"""The hooks of pre-commit are the commands of `scripts/check`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_hooks_and_script_run_the_same_commands() -> None:
    hooks = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"), re.M)
    script = (ROOT / "scripts" / "check").read_text(encoding="utf-8").partition('cd "$(dirname "$0")/.."\n')[2]
    assert hooks == script.splitlines()
