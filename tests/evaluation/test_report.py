"""Reports reproduce the results, and results that are not comparable never share a table."""

import csv
import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doap._support.errors import DataError
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.report import ReportFiles, write_report
from doap.evaluation.result import (
    Dataset,
    DescriptorInfo,
    Estimate,
    Figure,
    Result,
    write_results,
)
from oracles.html_pages import assert_well_nested
from oracles.results import estimate, make_result

NAME = "<i>a&b_c|d</i>"


@pytest.fixture
def report(tmp_path: Path):
    """Write results and their report."""

    def written(*results: Result) -> ReportFiles:
        folder = tmp_path / "results"
        folder.mkdir()
        for number, result in enumerate(results):
            write_results([result], folder / f"{number}.json")
        return write_report([folder], tmp_path / "report")

    return written


def descriptors() -> list[Result]:
    """Return results where RootSIFT is clearly worse than the best and the second is not."""
    bits = DescriptorInfo("teblid", "binary", 256, 32, "7" * 64, None)
    return [
        make_result("sift", 0.5),
        make_result("doap-128", 0.7),
        make_result("rootsift", 0.55),
        make_result("teblid", 0.68, descriptor=bits),
    ]


def markdown_rows(written: ReportFiles, first: str = "bytes") -> list[list[list[str]]]:
    """Return the cells of each table whose second column has this name, by row, without the header."""
    lines = written.markdown.read_text(encoding="utf-8").split("\n\n")
    tables = [block.strip().splitlines()[2:] for block in lines if block.startswith(f"| descriptor | {first}")]
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows] for rows in tables]


def page_of(written: ReportFiles) -> str:
    return written.page.read_text(encoding="utf-8")


def test_csv_has_every_estimate_with_all_its_digits(report) -> None:
    results = descriptors()
    written = report(*results)
    with written.csv.open(encoding="utf-8", newline="") as stream:
        rows = {(row["descriptor"], row["figure"], row["part"]): row for row in csv.DictReader(stream)}
    expected = {
        (result.descriptor.name, figure.name, part): one
        for result in results
        for figure in result.figures
        for part, one in {"": figure.total, **figure.parts}.items()
    }
    assert rows.keys() == expected.keys()
    for key, one in expected.items():
        row = rows[key]
        assert row["benchmark"] == "oxford"
        assert [float(row[name]) for name in ("value", "low", "high")] == [one.value, one.low, one.high]
        assert int(row["units"]) == one.units


def test_markdown_agrees_with_the_results_best_first(report) -> None:
    results = {result.descriptor.name: result for result in descriptors()}
    (rows,) = markdown_rows(report(*results.values()))
    assert [row[0] for row in rows] == ["doap-128", "teblid", "rootsift", "sift"]
    for name, size, *cells in rows:
        assert int(size) == results[name].descriptor.bytes
        for cell, figure in zip(cells, results[name].figures, strict=True):
            shown = [float(number) for number in re.findall(r"[\d.]+", cell)]
            total = figure.total
            assert shown == pytest.approx([total.value, total.low, total.high], abs=0.00051)


def test_best_is_bold_and_overlapping_intervals_are_marked(report) -> None:
    written = report(*descriptors())
    (rows,) = markdown_rows(written)
    marks = {row[0]: tuple("best" if "**" in cell else "≈" if "≈" in cell else "" for cell in row[2:]) for row in rows}
    assert marks == {"doap-128": ("best", "best"), "teblid": ("≈", "≈"), "rootsift": ("", ""), "sift": ("", "")}
    latex = written.latex.read_text(encoding="utf-8")
    assert re.findall(r"(\S+) & \d+ & \\textbf{0.700} {\\scriptsize \[0.680, 0.720\]} & \\textbf", latex) == [
        "doap-128"
    ]
    assert len(re.findall(r"^teblid .*\$\\approx\$ &.*\$\\approx\$ \\\\$", latex, re.M)) == 1
    # The second table has the differences from RootSIFT.
    assert [latex.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [2, 2, 2]
    page = page_of(written)
    assert re.findall(r"<td><b>([\d.]+)</b><small>(\[[^\]]*\])", page) == [
        ("0.700", "[0.680, 0.720]"),
        ("0.300", "[0.290, 0.310]"),
    ]


def test_a_figure_where_lower_is_better_ranks_the_lowest_first(report) -> None:
    def by_errors(name: str, value: float) -> Result:
        return make_result(name, figures=(Figure("FPR95", "lower", "pairs", estimate(value)),))

    written = report(by_errors("a", 0.4), by_errors("b", 0.1), by_errors("c", 0.9))
    assert [row[0] for row in markdown_rows(written)[0]] == ["b", "a", "c"]
    assert written.summaries["oxford"].startswith("b is best with FPR95 0.100 (0.080 to 0.120), 0.300 better than a")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seed": 1}, "seed"),
        ({"protocol": {"overlap error": 0.5, "ties": "expected"}}, "overlap error"),
        ({"protocol": {"overlap error": 0.4, "ties": "expected", "new": True}}, "new"),
        ({"dataset": Dataset("oxford_affine", "cd" * 32)}, "checksum"),
        ({"dataset": Dataset("other", "cd" * 32)}, "dataset"),
    ],
)
def test_results_that_are_not_comparable_share_no_table(report, changes: dict[str, object], expected: str) -> None:
    written = report(make_result("sift"), make_result("orb"), make_result("daisy", **changes))
    assert sorted([row[0] for row in rows] for rows in markdown_rows(written)) == [["daisy"], ["orb", "sift"]]
    first, second = written.summaries
    assert first != second
    texts = (written.markdown.read_text(encoding="utf-8"), page_of(written))
    for text in texts:
        notes = re.findall(r"Not comparable with the other tables of oxford\. This table: (.*?)\.[\n<]", text)
        assert len(notes) == 2
        assert all(note.startswith(f"{expected} ") and ", " not in note for note in notes)
    with written.csv.open(encoding="utf-8", newline="") as stream:
        assert {row["benchmark"] for row in csv.DictReader(stream)} == {first, second}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (
            descriptors(),
            "doap-128 is best with mAP 0.700 (0.680 to 0.720), 0.150 better than rootsift (0.550): their intervals "
            "do not overlap. Not significantly different from the best: teblid.",
        ),
        (
            [make_result("rootsift", 0.6), make_result("vgg", 0.59), make_result("sift", 0.5)],
            "rootsift is best with mAP 0.600 (0.580 to 0.620), 0.010 better than vgg (0.590): their intervals overlap.",
        ),
        (
            [make_result("SIFT", 0.5), make_result("vgg", 0.55, half=0.1)],
            "vgg is best with mAP 0.550 (0.450 to 0.650), 0.050 better than SIFT (0.500): their intervals overlap.",
        ),
        (
            [make_result(f"n{number}", 0.6 - number / 1000) for number in range(7)],
            "n0 is best with mAP 0.600 (0.580 to 0.620), 0.001 better than n1 (0.599): their intervals overlap. Not "
            "significantly different from the best: n2, n3, n4 and 2 more.",
        ),
        (
            [make_result("vgg", 0.55)],
            "vgg has mAP 0.550 (0.530 to 0.570); there is no other descriptor to compare it with.",
        ),
        ([make_result("vgg", math.nan)], "No descriptor has a finite mAP."),
    ],
)
def test_summary_has_the_best_its_lead_and_the_significance(report, results: list[Result], expected: str) -> None:
    written = report(*results)
    assert written.summaries == {"oxford": expected}
    assert f"oxford</a>: {expected}" in page_of(written)


def test_the_page_is_self_contained_and_well_nested(report) -> None:
    page = page_of(report(*descriptors()))
    assert not re.search(r"https?:|<script|<link|<iframe|@import|url\(", page)
    assert_well_nested(page)


def test_names_are_escaped_in_every_form(report) -> None:
    figure = Figure(NAME, "higher", NAME, estimate(0.5), {NAME: estimate(0.5)})
    result = make_result(NAME, benchmark=NAME, figures=(figure,), protocol={NAME: NAME}, versions={NAME: NAME})
    written = report(result)
    page = page_of(written)
    assert "<i>" not in page
    assert "&lt;i&gt;a&amp;b_c|d&lt;/i&gt;" in page
    assert_well_nested(page)
    assert r"a\&b\_c|d" in written.latex.read_text(encoding="utf-8")
    assert markdown_rows(written)[0][0][0] == r"\<i\>a&b\_c\|d\</i\>"
    with written.csv.open(encoding="utf-8", newline="") as stream:
        assert {row["descriptor"] for row in csv.DictReader(stream)} == {NAME}


def test_results_without_curves_histogram_or_parts_are_fine(report) -> None:
    bare = [Figure("mAP", "higher", "queries", estimate(0.5))]
    written = report(make_result(curves=(), histogram=None, figures=tuple(bare)))
    page = page_of(written)
    assert "Distances" not in page
    assert_well_nested(page)


def test_a_figure_that_some_lack_or_that_is_not_finite_is_a_dash(report) -> None:
    results = [make_result("a", 0.5), make_result("b", math.nan), make_result("c", 0.4)]
    results[2] = dataclasses.replace(results[2], figures=results[2].figures[:1])
    written = report(*results)
    cells = {row[0]: row[2:] for row in markdown_rows(written)[0]}
    assert list(cells) == ["a", "c", "b"]
    assert cells["b"] == ["–", "–"]
    assert cells["c"][1] == "–"
    assert not re.search(r"\bnan\b", page_of(written))


def test_every_part_has_a_chart_with_every_descriptor(report) -> None:
    page = page_of(report(*descriptors()))
    for part in ("All", "graf", "wall"):
        chart = re.search(rf"<figcaption>{part} .*?</figure>", page)[0]
        labels = re.findall(r"text-anchor=end>([^<]*)<", chart)
        assert labels == ["doap-128", "teblid", "rootsift", "sift"]
        assert (chart.count("<rect class='real'"), chart.count("<rect class='binary'")) == (3, 1)


def test_curves_label_the_best_three_and_the_references(report) -> None:
    many = [make_result(f"n{number}", 0.9 - number / 20) for number in range(6)]
    page = page_of(report(*many, make_result("sift", 0.2), make_result("rootsift", 0.3)))
    chart = re.search(r"<figcaption>precision-recall<.*?</figure>", page)[0]
    assert len(re.findall(r"<path class='\w+' d=[^>]*><title>", chart)) == 8
    assert chart.count("class='other'") == 3
    named = set(re.findall(r"<text class='\w+'[^>]*>([^<]*)<", chart))
    assert named == {"n0", "n1", "n2", "rootsift", "sift"}


def test_provenance_is_shown(report) -> None:
    other = make_result("orb", versions={"torch": "2.5.0"}, seconds={"describe": 9.5})
    page = page_of(report(make_result("sift"), other))
    for text in ("ab" * 32, "<th>overlap error<td>0.4", "2.5.0 (orb); 2.13.0 (sift)", "<td>9.5<td>–", "2025-05-04"):
        assert text in page


def test_two_descriptors_of_one_name_get_different_labels(report) -> None:
    twins = [DescriptorInfo("mine", "real", 128, 512, digit * 64, None) for digit in "ab"]
    written = report(*(make_result(value=0.5 + index / 10, descriptor=one) for index, one in enumerate(twins)))
    assert [row[0] for row in markdown_rows(written)[0]] == ["mine bbbbbb", "mine aaaaaa"]


def test_one_descriptor_twice_is_an_error_that_names_both_files(report) -> None:
    with pytest.raises(DataError, match=r"1\.json: .*0\.json is also a result of sift on oxford"):
        report(make_result("sift"), make_result("sift", 0.6))


def test_a_file_given_twice_counts_once(tmp_path: Path) -> None:
    file = write_results([make_result()], tmp_path / "sift.json")
    assert len(write_report([file, tmp_path, file], tmp_path / "report").summaries) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "doap results 1"}'])
def test_a_damaged_result_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "sift.json").write_text(text)
    with pytest.raises(DataError, match=r"sift\.json: .*results of `doap eval`"):
        write_report([tmp_path], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_missing_results_are_an_error_that_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no \*\.json"):
        write_report([tmp_path], tmp_path / "report")
    with pytest.raises(DataError, match=r"none\.json: no such file"):
        write_report([tmp_path / "none.json"], tmp_path / "report")


def test_out_must_not_be_a_file(tmp_path: Path) -> None:
    file = write_results([make_result()], tmp_path / "sift.json")
    with pytest.raises(DataError, match=r"sift\.json: expected a folder to write to"):
        write_report([file], file)


def test_a_report_among_its_results_can_be_made_again(tmp_path: Path) -> None:
    write_results([make_result()], tmp_path / "sift.json")
    first, second = (page_of(write_report([tmp_path], tmp_path / "report")) for _ in range(2))
    assert first == second


def paired(name: str, values: np.ndarray, **changes: object) -> Result:
    made = make_result(name, **changes)
    found = bootstrap_mean(values, seed=0)
    return dataclasses.replace(made, figures=(Figure("mAP", "higher", "pairs of images", found),))


def test_differences_are_paired_if_both_have_the_same_resamples(report) -> None:
    """Images differ more than descriptors: the intervals overlap although one is better on every image."""
    images = np.random.default_rng(0).uniform(0.2, 0.9, 40)
    better, worse, chance = images + 0.02, images, images + 0.02 * np.random.default_rng(1).standard_normal(40) + 0.015
    written = report(paired("better", better), paired("rootsift", worse), paired("maybe", chance))
    found, other = bootstrap_mean(better, seed=0), bootstrap_mean(worse, seed=0)
    assert found.low < other.value
    assert other.high > found.value
    (rows,) = markdown_rows(written)
    assert {row[0]: "≈" in row[2] for row in rows} == {"better": False, "maybe": True, "rootsift": False}
    assert "0.020 better than rootsift" in written.summaries["oxford"]
    assert "95 % interval of the difference 0.020 to 0.020" in written.summaries["oxford"]
    assert written.summaries["oxford"].endswith("Not significantly different from the best: maybe.")


def test_two_scenes_have_values_but_no_interval_and_no_significant_difference(report) -> None:
    written = report(paired("better", np.array([0.9, 0.8])), paired("rootsift", np.array([0.1, 0.2])))
    assert written.summaries["oxford"] == (
        "better is best with mAP 0.850 (no interval: 2 pairs of images), 0.700 better than rootsift (0.150): without "
        "intervals, the difference cannot be tested."
    )
    (rows,) = markdown_rows(written)
    assert {row[0]: row[2] for row in rows} == {
        "better": "**0.850** no interval (2 pairs of images)",
        "rootsift": "0.150 no interval (2 pairs of images)",
    }
    (differences,) = markdown_rows(written, "mAP ↑")
    assert differences == [["better", "+0.700 no interval (2 pairs of images)"]]
    page, latex = page_of(written), written.latex.read_text(encoding="utf-8")
    assert not re.search(r"\bnan\b|None", page + latex)
    assert page.count("no interval<br>(2 pairs of images)") == 3
    assert latex.count("no interval (2 pairs of images)") == 3
    with written.csv.open(encoding="utf-8", newline="") as stream:
        better, rootsift = csv.DictReader(stream)
    assert [better[name] for name in ("low", "high", "units", "unit")] == ["", "", "2", "pairs of images"]
    assert float(better["minus rootsift"]) == pytest.approx(0.7)
    assert better["minus rootsift low"] == better["minus rootsift-wide"] == rootsift["minus rootsift"] == ""


def test_differences_from_both_references_mark_wins_and_losses_alike(report) -> None:
    """The oracle subtracts the resamples of the reference from those of each descriptor."""
    images, random = np.random.default_rng(0).uniform(0.3, 0.7, 40), np.random.default_rng(1)
    values = {
        "rootsift": images,
        "rootsift-wide": images + 0.05,
        "win": images + 0.2 + 0.01 * random.standard_normal(40),
        "loss": images - 0.2 + 0.01 * random.standard_normal(40),
        "similar": images + (noise := 0.1 * random.standard_normal(40)) - noise.mean(),
    }
    written = report(*(paired(name, some) for name, some in values.items()))
    tables = markdown_rows(written, "mAP ↑")
    for reference, rows in zip(("rootsift", "rootsift-wide"), tables, strict=True):
        assert reference not in {row[0] for row in rows}
        base = bootstrap_mean(values[reference], seed=0)
        for name, cell in rows:
            own = bootstrap_mean(values[name], seed=0)
            low, high = np.quantile(np.subtract(own.resampled, base.resampled), [0.025, 0.975])
            numbers = [float(number.replace("−", "-")) for number in re.findall(r"[−+]?\d\.\d+", cell)]
            assert numbers == pytest.approx([own.value - base.value, low, high], abs=0.00051)
            assert cell[-1] == ("▲" if low > 0 else "▼" if high < 0 else "]")
    marks = {row[0]: row[1][-1] for row in tables[0]}
    assert marks == {"win": "▲", "rootsift-wide": "▲", "similar": "]", "loss": "▼"}
    page, latex = page_of(written), written.latex.read_text(encoding="utf-8")
    assert "<summary>Difference from RootSIFT at 1.5 times its support (rootsift-wide)</summary>" in page
    assert len(re.findall(r"<td class=worse>−0\.\d+ ▼<small>", page)) == 4
    assert len(re.findall(r"<td class=better>\+0\.\d+ ▲<small>", page)) == 3
    assert (latex.count("\\blacktriangledown$ \\\\"), latex.count("\\blacktriangle$ \\\\")) == (4, 3)


def test_a_lower_error_is_a_win(report) -> None:
    def by_errors(name: str, shift: float) -> Result:
        found = bootstrap_mean(np.linspace(0.3, 0.5, 30) + shift, seed=0)
        return make_result(name, figures=(Figure("FPR95", "lower", "pairs", found),))

    written = report(by_errors("rootsift", 0), by_errors("fewer", -0.1), by_errors("more", 0.1))
    (rows,) = markdown_rows(written, "FPR95 ↓")
    assert rows == [["fewer", "−0.100 [−0.100, −0.100] ▲"], ["more", "+0.100 [+0.100, +0.100] ▼"]]


def test_the_reference_of_a_table_of_one_has_no_differences(report) -> None:
    written = report(make_result("rootsift"))
    assert "Difference from" not in page_of(written)
    assert markdown_rows(written, "mAP ↑") == []


def test_units_are_named_in_the_singular_and_by_part(report) -> None:
    parts = {"graf": Estimate(0.5, None, None, 1), "wall": estimate(0.5, units=5)}
    figure = Figure("mAP", "higher", "sequences", Estimate(0.5, None, None, 2), parts, "pairs of images")
    page = page_of(report(make_result(figures=(figure,))))
    captions = re.findall(r"<figcaption>(?:All|graf|wall) <small>([^<]*)<", page)
    assert captions == ["2 sequences", "1 pair of images", "5 pairs of images"]


def speed(name: str, per_image: float, per_pair: float, **changes: object) -> Result:
    figures = {"ms per 1,000 keypoints": 100 * per_image, "s per image": per_image, "s per pair": per_pair}
    made = tuple(Figure(label, "lower", "photos", estimate(value, 0.01)) for label, value in figures.items())
    return make_result(name, benchmark="speed", figures=made, **changes)


def test_accuracy_is_plotted_against_the_time_of_two_images_and_their_matching(report) -> None:
    pipeline = DescriptorInfo("xfeat", "real", 64, 256, "9" * 64, None, pipeline=True)
    bits = DescriptorInfo("teblid", "binary", 256, 32, "7" * 64, None)
    results = [
        *(make_result(name, value, benchmark="pose") for name, value in (("sift", 0.3), ("untimed", 0.9))),
        make_result("teblid", 0.2, benchmark="pose", descriptor=bits),
        make_result("xfeat", 0.6, benchmark="pose", descriptor=pipeline),
        make_result("sift", 0.5),
        make_result("sift", 0.5, benchmark="patches"),
        speed("sift", 0.5, 0.125),
        speed("teblid", 0.25, 0.05, descriptor=bits),
        speed("xfeat", 4.0, 2.5, descriptor=pipeline),
    ]
    page = page_of(report(*results))
    section = re.search(r"<section><h2 id=cost>.*?</section>", page)[0]
    assert page.index(section) < page.index("<h2 id='oxford'>")
    charts = re.findall(r"<figcaption>(\w+)</figcaption>", section)
    assert charts == ["pose", "oxford"]
    titles = re.findall(r"<title>([^<]*)</title><rect class='(\w+)'", section)
    assert titles == [
        ("xfeat: 10.5 s, mAP 0.600", "pipeline"),
        ("sift: 1.12 s, mAP 0.300", "real"),
        ("teblid: 0.55 s, mAP 0.200", "binary"),
        ("sift: 1.12 s, mAP 0.500", "real"),
    ]
    assert_well_nested(page)


def test_without_times_or_without_a_geometric_benchmark_there_is_no_plot(report, tmp_path) -> None:
    assert "id=cost" not in page_of(report(make_result("sift"), make_result("orb")))
    folder = tmp_path / "times"
    folder.mkdir()
    write_results([speed("sift", 0.5, 0.1)], folder / "speed.json")
    write_results([make_result("sift", benchmark="patches")], folder / "patches.json")
    assert "id=cost" not in page_of(write_report(folder, tmp_path / "second"))


def test_a_difference_that_is_not_significant_is_reported(report) -> None:
    images, noise = np.random.default_rng(0).uniform(0.2, 0.9, 40), np.random.default_rng(1).standard_normal(40)
    written = report(paired("rootsift", images), paired("vgg", images + 0.001 + 0.1 * (noise - noise.mean())))
    assert written.summaries["oxford"].endswith(
        "0.001 better than rootsift (0.576): the difference is not significant."
    )


def test_different_units_are_not_paired(report) -> None:
    images = np.random.default_rng(0).uniform(0.2, 0.9, 40)
    written = report(paired("rootsift", images), paired("vgg", images[:30] + 0.02))
    assert "their intervals overlap" in written.summaries["oxford"]


SCRIPT = "<script>alert(1)</script>"


@pytest.mark.parametrize("key", ["kind", "dim", "bytes"])
def test_a_foreign_result_cannot_put_a_script_into_a_number(tmp_path: Path, key: str) -> None:
    path = write_results([make_result()], tmp_path / "r.json")
    stored = json.loads(path.read_text())
    stored["results"][0]["descriptor"][key] = SCRIPT
    path.write_text(json.dumps(stored))
    with pytest.raises(DataError, match=rf"r\.json: .*descriptor\.{key}"):
        write_report([path], tmp_path / "report")


def test_every_text_of_a_foreign_result_is_escaped(tmp_path: Path) -> None:
    path = write_results([make_result()], tmp_path / "r.json")

    def replace_texts(value: Any) -> Any:
        if isinstance(value, dict):
            fixed = ("format", "better", "kind")
            return {key: one if key in fixed else replace_texts(one) for key, one in value.items()}
        if isinstance(value, list):
            return [replace_texts(one) for one in value]
        return SCRIPT if isinstance(value, str) else value

    stored = replace_texts(json.loads(path.read_text()))
    (result,) = stored["results"]
    result["figures"][0]["parts"] = {SCRIPT: result["figures"][0]["total"]}
    result["protocol"] = {SCRIPT: SCRIPT}
    result["versions"] = {SCRIPT: SCRIPT}
    path.write_text(json.dumps(stored))
    assert "<script" not in write_report([path], tmp_path / "report").page.read_text()


@pytest.mark.parametrize("key", ["figures", "curves", "histogram", "seconds", "date"])
@pytest.mark.parametrize("value", [None, -1, [[]], {"a": {}}])
def test_a_result_with_a_wrong_value_is_refused_or_shown(tmp_path: Path, key: str, value: Any) -> None:
    path = write_results([make_result()], tmp_path / "r.json")
    stored = json.loads(path.read_text())
    stored["results"][0][key] = value
    path.write_text(json.dumps(stored))
    if (key, value) == ("histogram", None):
        assert write_report([path], tmp_path / "report").page.is_file()
        return
    with pytest.raises(DataError, match=rf"r\.json: .*{key}"):
        write_report([path], tmp_path / "report")
