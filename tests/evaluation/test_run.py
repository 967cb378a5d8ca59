"""Evaluation of several descriptors: one result for each; a failure of one does not stop the others."""

import numpy as np
import pytest

from doap._support.errors import ArgumentError, DataError
from doap.baselines import colmap_rootsift
from doap.describer import from_function
from doap.detectors import colmap
from doap.detectors import sift as sift_detector
from doap.evaluation import evaluate, read_results
from doap.evaluation.candidates import open_candidate
from doap.evaluation.result import Dataset, Estimate, Figure, Scores

PATCHES = np.random.default_rng(0).integers(0, 256, (6, 32, 32), dtype=np.uint8)


class Toy:
    """A benchmark whose only figure is the mean of all descriptors."""

    name, needs, dataset, protocol = "toy", "patches", Dataset("six", "00" * 32), {"patches": 6}

    def evaluate(self, describer, seed):
        value = float(describer.describe_patches(PATCHES).double().mean())
        return Scores((Figure("mean", "higher", "patches", Estimate(value, value, value, 6)),))


def refuses(patches):
    if len(patches) == 6:
        raise ArgumentError("patches: expected the photo, got patches. Use the benchmark oxford.")
    return patches.mean(dim=(2, 3))


def test_a_descriptor_that_fails_is_skipped_with_its_reason(tmp_path):
    reported = []
    evaluation = evaluate(
        {"no": from_function(refuses), "sift": "sift"},
        Toy(),
        None,
        tmp_path,
        progress=lambda *state: reported.append(state),
    )
    assert evaluation.skipped == {"no": "patches: expected the photo, got patches. Use the benchmark oxford."}
    assert list(evaluation.results) == list(read_results(evaluation.file)) == ["sift"]
    assert reported == [(0, 2, "no"), (1, 2, "sift"), (2, 2, "done")]


def test_a_resumed_run_keeps_results_of_the_same_conditions_only(tmp_path):
    class Counted(Toy):
        protocol = {"patches": 6, "sizes": (1, 2)}  # noqa: RUF012
        runs = 0

        def evaluate(self, describer, seed):
            self.runs += 1
            return super().evaluate(describer, seed)

    toy = Counted()

    def run(**options):
        evaluation = evaluate(["sift"], toy, None, tmp_path, **options)
        assert evaluation.results["sift"].figures == read_results(evaluation.file)["sift"].figures
        return toy.runs

    assert run(resume=True) == 1
    assert run(resume=True) == 1
    assert run() == 2
    assert run(resume=True, seed=5) == 3
    toy.protocol = {"patches": 6, "sizes": (1, 3)}
    assert run(resume=True, seed=5) == 4
    toy.dataset = Dataset("six", "01" * 32)
    assert run(resume=True, seed=5) == 5
    assert run(resume=True, seed=5) == 5


def test_results_of_other_descriptors_are_kept(tmp_path):
    first = evaluate(["sift", "teblid"], Toy(), None, tmp_path)
    again = evaluate(["sift"], Toy(), None, tmp_path, seed=7)
    stored = read_results(again.file)
    assert list(stored) == ["sift", "teblid"]
    assert (stored["sift"].seed, stored["teblid"]) == (7, first.results["teblid"])


def test_a_process_keeps_what_another_one_adds_during_its_evaluation(tmp_path):
    class Slow(Toy):
        def evaluate(self, describer, seed):
            evaluate(["teblid"], Toy(), None, tmp_path)
            return super().evaluate(describer, seed)

    evaluation = evaluate(["sift"], Slow(), None, tmp_path)
    assert list(read_results(evaluation.file)) == ["teblid", "sift"]


def test_a_damaged_file_of_results_is_an_error_before_the_evaluation(tmp_path):
    (tmp_path / "toy-six.json").write_text("{")
    with pytest.raises(DataError):
        evaluate("sift", Toy(), None, tmp_path)
    assert (tmp_path / "toy-six.json").read_text() == "{"


@pytest.mark.parametrize("needs", ["patches", "frames"])
def test_a_descriptor_that_cannot_work_with_the_benchmark_is_skipped(tmp_path, needs):
    class Needy(Toy):
        detector = sift_detector()

    Needy.needs = needs
    evaluation = evaluate(["colmap-sift", "sift"], Needy(), None, tmp_path)
    assert (list(evaluation.results), list(evaluation.skipped)) == (["sift"], ["colmap-sift"])
    for suitable in (("frames", colmap()), ("images", None)):
        open_candidate(colmap_rootsift()).check(*suitable)


@pytest.mark.parametrize(
    ("benchmark", "root", "settings"),
    [
        ("patches", None, {}),
        (Toy(), ".", {}),
        (Toy(), None, {"groups": 2}),
        ("patches", ".", {"groups": "many"}),
        ("patches", ".", {"progress": 1}),
        ("oxford", ".", {"root": "."}),
        ("oxford", ".", {"detector": "surf"}),
        ("romepatches", ".", {"split": "a"}),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, benchmark, root, settings):
    with pytest.raises(ArgumentError):
        evaluate("sift", benchmark, root, tmp_path, settings=settings)
