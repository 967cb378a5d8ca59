"""Generated model cards and tables match the files that they are generated from."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from doap.descriptor import SHIPPED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="results/ is only in the repository")


@pytest.mark.parametrize("name", SHIPPED)
def test_model_cards_match_weights_results_and_notes(name, import_tool):
    tool: ModuleType = import_tool("model_cards")
    path = SHIPPED[name]
    assert path.with_suffix(".md").read_text(encoding="utf-8") == tool.model_card(name, path, RESULTS / "evaluation")


def test_tables_on_large_collections_match_the_results(import_tool):
    tool, markdown = import_tool("scale_tables"), import_tool("generated_markdown")
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS / "scale").glob("*.json")}
    contents = tool.make_tables(results)
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    for name in contents:
        assert any(f"<!-- {name}: written by {tool.TOOL} -->" in text for text in pages.values()), name
    for path, text in pages.items():
        assert markdown.replace_generated(text, tool.TOOL, contents) == text, path


def test_tables_of_evaluations_and_losses_match_the_results(import_tool):
    tool, markdown = import_tool("tables"), import_tool("generated_markdown")
    contents = tool.make_tables(RESULTS)
    pages = {path: path.read_text(encoding="utf-8") for path in tool.PAGES}
    for name in contents:
        assert any(f"<!-- {name}: written by {tool.TOOL} -->" in text for text in pages.values()), name
    for path, text in pages.items():
        assert markdown.replace_generated(text, tool.TOOL, contents) == text, path


def test_figures_in_sentences_match_the_results(import_tool):
    tool = import_tool("figures")
    quoting = {path: text for path in tool.pages() if tool.QUOTED.search(text := path.read_text(encoding="utf-8"))}
    assert quoting
    for path, text in quoting.items():
        assert tool.replace_figures(text) == text, path


def test_a_figure_that_drifted_is_replaced_in_its_form(import_tool):
    tool = import_tool("figures")
    tool.read = {"a": {"b": {"x y": 0.6674, "z": 0.25}, "rows": [{"name": "AP", "n": 1234.5}]}}.__getitem__
    text = (
        "1.0<!--% a: b > x y -->, +9.00<!--= a: b > z − b > x y -->, 2.7<!--= a: b > x y ÷ b > z -->, "
        "9<!--= a: rows > name=AP > n -->"
    )
    assert tool.QUOTED.sub("#", tool.replace_figures(text)) == "#, #, #, #"
    numbers = [found["number"] for found in tool.QUOTED.finditer(tool.replace_figures(text))]
    assert numbers == ["66.7", "−0.42", "2.7", "1,234"]
