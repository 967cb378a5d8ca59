"""The `doap report` command."""

import json
from pathlib import Path

import pytest

from doap.evaluation.result import write_results
from oracles.results import make_result


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results").mkdir()
    for name, value in (("sift", 0.5), ("vgg", 0.6)):
        write_results([make_result(name, value)], tmp_path / "results" / f"{name}.json")
    return tmp_path / "results"


def test_json_has_the_paths(doap, results, tmp_path):
    values = json.loads(doap("report", *results.iterdir(), "--out", tmp_path / "report", "--json").stdout)
    assert list(values) == ["page", "markdown", "latex", "summaries"]
    assert {Path(values[name]) for name in list(values)[:3]} == set((tmp_path / "report").iterdir())
