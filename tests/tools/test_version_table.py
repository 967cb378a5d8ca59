"""The table of tested combinations has the counts of the runs, and one row per Python and set."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(import_tool):
    return import_tool("version_table")


def test_tests_of_a_report_are_counted_by_outcome(tool) -> None:
    cases = '<testcase classname="a" name="b"/><testcase><skipped/></testcase>'
    cases += (
        '<testcase classname="c" name="d"><failure/></testcase><testcase classname="e" name="f"><error/></testcase>'
    )
    found = tool.count_tests(ElementTree.fromstring(f"<testsuites><testsuite>{cases}</testsuite></testsuites>"))
    assert found == {"passed": 1, "skipped": 1, "failed": 2, "failures": ["c::d", "e::f"]}


def test_a_new_run_replaces_the_same_minor_version_and_set(tool) -> None:
    old = [{"python": "3.13.1", "set": "pinned"}, {"python": "3.11.2", "set": "lowest"}]
    rows = tool.merged(old, {"python": "3.13.5", "set": "pinned"})
    assert [(row["python"], row["set"]) for row in rows] == [("3.11.2", "lowest"), ("3.13.5", "pinned")]


def test_a_combination_that_was_not_run_states_why(tool) -> None:
    text = tool.render([{"python": "3.12", "set": "pinned", "not_run": "no interpreter"}])
    assert "not run" in text
    assert text.endswith("- Python 3.12, pinned: no interpreter")


def test_the_page_has_the_table_of_the_results(tool) -> None:
    rows = tool.json.loads(tool.RESULTS.read_text(encoding="utf-8"))["runs"]
    assert tool.render(rows) in tool.PAGE.read_text(encoding="utf-8")
