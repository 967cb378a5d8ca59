"""Results survive a round trip to disk, and damaged files are reported."""

import dataclasses
import json

import pytest

from doap._support.errors import DataError
from doap.evaluation.result import FORMAT, DescriptorInfo, Estimate, Figure, read_results, write_results
from oracles.results import make_result

RESULT = make_result("my <net>")


@pytest.mark.parametrize("histogram", [RESULT.histogram, None])
def test_results_survive_a_round_trip(tmp_path, histogram):
    result = dataclasses.replace(RESULT, histogram=histogram)
    other = dataclasses.replace(result, descriptor=DescriptorInfo("orb", "binary", 256, 32, "ef" * 32, None))
    read = read_results(write_results([result, other], tmp_path / "r.json"))
    assert read == {"my <net>": result, "orb": other}


def test_resamples_are_stored_for_the_total_only(tmp_path):
    sampled = Estimate(0.5, 0.4, 0.6, 5, [0.45, 0.55])
    figure = Figure("mAP", "higher", "pairs of images", sampled, {"graf": sampled})
    result = dataclasses.replace(RESULT, figures=(figure,))
    read = read_results(write_results([result], tmp_path / "r.json"))["my <net>"].headline
    assert read.total.resampled == [0.45, 0.55]
    assert read.parts["graf"] == Estimate(0.5, 0.4, 0.6, 5)


def test_an_estimate_without_an_interval_is_valid_json(tmp_path):
    alone = Estimate(0.5, None, None, 2)
    figure = Figure("mAP", "higher", "scenes", alone, {"graf": alone})
    path = write_results([dataclasses.replace(RESULT, figures=(figure,))], tmp_path / "r.json")
    (stored,) = json.loads(path.read_text(), parse_constant=pytest.fail)["results"]
    assert (stored["figures"][0]["total"]["low"], stored["figures"][0]["total"]["high"]) == (None, None)
    assert read_results(path)["my <net>"].headline == figure


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "another"}', json.dumps({"format": FORMAT, "results": [{"figures": []}]})],
    ids=["empty", "list", "no format", "another format", "fields missing"],
)
def test_a_file_without_results_is_named(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(DataError):
        read_results(tmp_path / "r.json")
    with pytest.raises(DataError):
        read_results(tmp_path / "gone.json")


def test_two_results_of_one_descriptor_in_a_file_are_refused(tmp_path):
    path = write_results([RESULT, RESULT], tmp_path / "r.json")
    with pytest.raises(DataError):
        read_results(path)
