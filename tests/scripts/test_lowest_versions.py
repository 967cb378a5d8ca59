"""The constraints of the lowest versions name every dependency of users once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(import_tool):
    return import_tool("lowest_versions")


def test_a_lower_bound_becomes_a_pin(tool) -> None:
    extras = {"a": ["ray[data]>=2.40"], "dev": ["pytest>=8"], "all": ["doap[a]"]}
    project = {"dependencies": ["torch>=2.5", "tomli>=2; python_version < '3.11'"], "optional-dependencies": extras}
    assert tool.lowest(project) == ["ray==2.40", "tomli==2; python_version < '3.11'", "torch==2.5"]


def test_a_dependency_without_a_bound_is_refused(tool) -> None:
    with pytest.raises(ValueError, match="torch: expected name>=version"):
        tool.lowest({"dependencies": ["torch"], "optional-dependencies": {}})


def test_every_bound_of_the_project_is_understood(tool) -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = tool.lowest(tool.tomllib.loads(pyproject)["project"])
    assert len(lines) == len({line.split("==")[0] for line in lines})
    assert any(re.match(r"torch==2\.", line) for line in lines)
