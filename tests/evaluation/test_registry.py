"""A new benchmark is one class and one line in the registry; everything else follows from its name."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import Field

from doap._support.files import sha256
from doap.evaluation import BENCHMARKS, BenchmarkSettings, evaluate, write_report
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.result import Dataset, Figure, Scores
from doap.metrics import table_distances


class DarkerBenchmark:
    """Match patches with darker copies of themselves; the root is a .npy file of patches (N, S, S)."""

    class Settings(BenchmarkSettings):
        """Settings of the benchmark `darker`."""

        factor: float = Field(0.25, gt=0, le=1, description="Factor of the grey values.")

    name = "darker"
    needs = "patches"

    def __init__(self, root, /, *, progress=lambda *_: None, **settings):
        self.factor = self.Settings.parse(settings).factor
        self.patches = np.load(root)
        self.dataset = Dataset(Path(root).stem, sha256(Path(root)))
        self.protocol = {"factor": self.factor, "ties": "first"}

    def evaluate(self, describer, seed):
        bright = describer.describe_patches(self.patches)
        dark = describer.describe_patches((self.patches * self.factor).astype(np.uint8))
        nearest = table_distances(dark, bright).argmin(dim=1)
        correct = (nearest == torch.arange(len(bright))).double()
        return Scores((Figure("matched", "higher", "patches", bootstrap_mean(correct, seed)),))


@pytest.fixture
def patches(tmp_path):
    path = tmp_path / "noise.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (40, 32, 32), dtype=np.uint8))
    return path


@pytest.fixture
def darker(monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "darker", DarkerBenchmark)


def test_a_new_benchmark_needs_one_line(darker, patches, tmp_path):
    evaluation = evaluate(["rootsift", "random"], "darker", patches, tmp_path / "results", settings={"factor": "0.5"})
    assert evaluation.results["rootsift"].protocol == {"factor": 0.5, "ties": "first"}
    assert evaluation.results["rootsift"].headline.total.value == 1
    assert evaluation.results["random"].headline.total.value < 0.2
    report = write_report(tmp_path / "results", tmp_path / "report")
    assert report.summaries["darker"].startswith("rootsift is best with matched 1.000")
    assert "<h2 id='darker'>darker <small>on noise</small></h2>" in report.page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_registered_benchmark_knows_its_name_and_describes_its_settings(name):
    benchmark = BENCHMARKS[name]
    assert benchmark.name == name
    assert list(inspect.signature(benchmark).parameters) == ["root", "progress", "settings"]
    for setting in benchmark.Settings.model_fields.values():
        assert setting.description
        assert not setting.is_required()
