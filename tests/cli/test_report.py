"""The `doap report` command."""

import json
from pathlib import Path

import pytest

from doap.evaluation.result import write_results
from oracles.results import make_result


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    for name, value in (("sift", 0.5), ("vgg", 0.6)):
        write_results([make_result(name, value)], tmp_path / "results" / f"{name}.json")
    return tmp_path / "results"


def test_summaries_and_the_page_are_printed(doap, results, tmp_path) -> None:
    ran = doap("report", results, "--out", tmp_path / "report")
    assert ran.returncode == 0
    summary, wrote = ran.stdout.splitlines()
    assert summary.startswith("oxford: vgg is best with mAP 0.600 (0.580 to 0.620), 0.100 better than sift (0.500): ")
    assert wrote == f"Wrote {tmp_path / 'report' / 'index.html'}"


def test_json_has_the_paths(doap, results, tmp_path) -> None:
    values = json.loads(doap("report", *results.iterdir(), "--out", tmp_path / "report", "--json").stdout)
    assert list(values) == ["page", "markdown", "latex", "summaries"]
    assert {Path(values[name]) for name in list(values)[:3]} == set((tmp_path / "report").iterdir())
