"""Reports reproduce the results, and results that are not comparable never share a table."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest

from doap._support.errors import DataError
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.report import write_report
from doap.evaluation.result import (
    Dataset,
    DescriptorInfo,
    Figure,
    write_results,
)
from oracles.html_pages import assert_well_nested
from oracles.results import estimate, make_result

NAME = "<i>a&b_c|d</i>"
IMAGES = np.random.default_rng(0).uniform(0.3, 0.7, 40)


@dataclasses.dataclass
class Written:
    """The files of a report as text, and its summaries."""

    page: str
    markdown: str
    latex: str
    summaries: dict[str, str]

    def rows(self, first: str = "bytes") -> list[list[list[str]]]:
        """Return the cells of each Markdown table whose second column has this name, by row, without the header."""
        blocks = [block for block in self.markdown.split("\n\n") if block.startswith(f"| descriptor | {first}")]
        tables = [block.strip().splitlines()[2:] for block in blocks]
        return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows] for rows in tables]


@pytest.fixture
def report(tmp_path):
    """Write results and their report."""

    def written(*results):
        folder = tmp_path / "results"
        folder.mkdir()
        for number, result in enumerate(results):
            write_results([result], folder / f"{number}.json")
        summaries = write_report([folder], tmp_path / "report")
        assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
            "index.html",
            "tables.md",
            "tables.tex",
        ]
        files = ("index.html", "tables.md", "tables.tex")
        return Written(*((tmp_path / "report" / name).read_text(encoding="utf-8") for name in files), summaries)

    return written


def paired(name, values, better="higher", **changes):
    """Return a result with a figure that was resampled with the same seed as that of the others."""
    found = bootstrap_mean(values, seed=0)
    return make_result(name, figures=(Figure("mAP", better, "pairs of images", found),), **changes)


def descriptors():
    """Return results where RootSIFT is clearly worse than the best and the second is not."""
    noise = 0.1 * np.random.default_rng(1).standard_normal(40)
    bits = DescriptorInfo("teblid", "binary", 256, 32, "7" * 64, None)
    return [
        paired("sift", IMAGES - 0.1),
        paired("doap-128", IMAGES + 0.2),
        paired("rootsift", IMAGES),
        paired("teblid", IMAGES + 0.19 + noise - noise.mean(), descriptor=bits),
    ]


def test_tables_agree_with_the_results_best_first(report):
    results = {result.descriptor.name: result for result in descriptors()}
    written = report(*results.values())
    (rows,) = written.rows()
    assert [row[0] for row in rows] == ["doap-128", "teblid", "rootsift", "sift"]
    for name, size, cell in rows:
        total = results[name].headline.total
        shown = [float(number) for number in re.findall(r"[\d.]+", cell)]
        assert int(size) == results[name].descriptor.bytes
        assert shown == pytest.approx([total.value, total.low, total.high], abs=0.00051)
        assert f"{shown[0]:.3f}" in written.page
        assert re.search(rf"^{name} & {size} & \S*{shown[0]:.3f}\S* {{\\scriptsize \[", written.latex, re.M)
    assert not re.search(r"https?:|<script|<link|<iframe|@import|url\(", written.page)
    assert_well_nested(written.page)
    # The best and what does not differ from it significantly are bold.
    assert {row[0] for row in rows if "**" in row[2]} == {"doap-128", "teblid"}
    assert written.latex.count(r"\textbf") == written.page.count("<td class=best><b>") == 2


@pytest.mark.parametrize(("better", "sign"), [("higher", 1), ("lower", -1)])
def test_differences_from_rootsift_mark_wins_and_losses_alike(report, better, sign):
    """The oracle subtracts the resamples of the reference from those of each descriptor."""
    random = np.random.default_rng(1)
    noise = 0.1 * random.standard_normal(40)
    values = {
        "rootsift": IMAGES,
        "win": IMAGES + sign * 0.2 + 0.01 * random.standard_normal(40),
        "loss": IMAGES - sign * 0.2 + 0.01 * random.standard_normal(40),
        "similar": IMAGES + noise - noise.mean(),
    }
    written = report(*(paired(name, some, better) for name, some in values.items()))
    (rows,) = written.rows(f"mAP {'↑' if sign > 0 else '↓'}")
    base = bootstrap_mean(values["rootsift"], seed=0)
    for name, cell in rows:
        own = bootstrap_mean(values[name], seed=0)
        low, high = np.quantile(np.subtract(own.resampled, base.resampled), [0.025, 0.975])
        numbers = [float(number.replace("−", "-")) for number in re.findall(r"[−+]?\d\.\d+", cell)]
        assert numbers == pytest.approx([own.value - base.value, low, high], abs=0.00051)
    assert {name: cell[-1] for name, cell in rows} == {"win": "▲", "similar": "]", "loss": "▼"}
    assert re.findall(r"<td class=(worse|better)>[^ ]+ (.)<small>", written.page) == [("better", "▲"), ("worse", "▼")]
    assert (written.latex.count("\\blacktriangledown$ \\\\"), written.latex.count("\\blacktriangle$ \\\\")) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seed": 1}, "seed 1"),
        ({"protocol": {"overlap error": 0.5, "ties": "expected"}}, "overlap error 0.5"),
        ({"protocol": {"overlap error": 0.4, "ties": "expected", "new": True}}, "new true"),
        ({"dataset": Dataset("oxford_affine", "cd" * 32)}, "checksum cdcdcdcdcdcd"),
        ({"dataset": Dataset("other", "cd" * 32)}, "other"),
    ],
)
def test_results_that_are_not_comparable_share_no_table(report, changes, expected):
    written = report(make_result("sift"), make_result("orb"), make_result("daisy", **changes))
    assert sorted([row[0] for row in rows] for rows in written.rows()) == [["daisy"], ["orb", "sift"]]
    assert len(written.summaries) == 2
    assert f"oxford ({expected})" in written.summaries


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (
            [paired("rootsift", IMAGES), paired("best", IMAGES + 0.02), paired("sift", IMAGES + 0.01)],
            r"best is best with mAP 0\.\d+ \(0\.\d+ to 0\.\d+\), 0\.020 better than rootsift \(0\.\d+\): "
            r"95 % interval of the difference 0\.020 to 0\.020\.",
        ),
        (
            [paired("SIFT", IMAGES), paired("vgg", IMAGES + 0.1 * np.tile([1.1, -1.0], 20))],
            r"vgg is best .* better than SIFT .*: the difference is not significant\.",
        ),
        (
            [paired("rootsift", IMAGES), paired("vgg", IMAGES[:30] + 0.9)],
            r"vgg is best .*: without paired intervals, the difference cannot be tested\.",
        ),
        (
            [paired("vgg", np.array([0.9, 0.8]))],
            r"vgg has mAP 0\.850 \(no interval\); there is no other descriptor to compare it with\.",
        ),
        ([make_result("vgg", math.nan)], r"No descriptor has a finite mAP\."),
    ],
)
def test_summary_has_the_best_its_lead_and_the_significance(report, results, expected):
    written = report(*results)
    assert re.fullmatch(expected, written.summaries["oxford"])
    assert f"oxford</a>: {written.summaries['oxford']}" in written.page


def test_names_are_escaped_in_every_form(report):
    figure = Figure(NAME, "higher", NAME, estimate(0.5), {NAME: estimate(0.5)})
    result = make_result(NAME, benchmark=NAME, figures=(figure,), protocol={NAME: NAME}, versions={NAME: NAME})
    written = report(result)
    assert "<i>" not in written.page
    assert "&lt;i&gt;a&amp;b_c|d&lt;/i&gt;" in written.page
    assert_well_nested(written.page)
    assert r"a\&b\_c|d" in written.latex
    assert written.rows()[0][0][0] == r"\<i\>a&b\_c\|d\</i\>"


def test_what_is_missing_or_not_finite_is_a_dash_or_left_out(report):
    bare = {"curves": (), "histogram": None}
    results = [make_result("a", 0.5, **bare), make_result("b", math.nan, **bare), make_result("rootsift", 0.4, **bare)]
    results[2] = dataclasses.replace(results[2], figures=results[2].figures[:1])
    written = report(*results)
    cells = {row[0]: row[2:] for row in written.rows()[0]}
    assert list(cells) == ["a", "rootsift", "b"]
    assert cells["b"] == ["–", "–"]
    assert cells["rootsift"][1] == "–"
    assert not re.search(r"\bnan\b|None|Curves", written.page)
    assert_well_nested(written.page)


def test_two_descriptors_of_one_name_get_different_labels(report):
    twins = [DescriptorInfo("mine", "real", 128, 512, digit * 64, None) for digit in "ab"]
    written = report(*(make_result(value=0.5 + index / 10, descriptor=one) for index, one in enumerate(twins)))
    assert [row[0] for row in written.rows()[0]] == ["mine bbbbbb", "mine aaaaaa"]


def test_one_descriptor_twice_is_refused(report):
    with pytest.raises(DataError):
        report(make_result("sift"), make_result("sift", 0.6))


def test_a_file_given_twice_counts_once_and_a_report_among_its_results_can_be_made_again(tmp_path):
    file = write_results([make_result()], tmp_path / "sift.json")
    first, second = (write_report([file, tmp_path, file], tmp_path / "report") for _ in range(2))
    assert len(first) == 1
    assert first == second


SCRIPT = "<script>alert(1)</script>"


def test_every_text_of_a_foreign_result_is_escaped(tmp_path):
    path = write_results([make_result()], tmp_path / "r.json")

    def replace_texts(value):
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
    write_report([path], tmp_path / "report")
    assert "<script" not in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.parametrize("value", [None, -1, [[]], {"a": {}}, SCRIPT])
@pytest.mark.parametrize("key", ["figures", "curves", "histogram", "seconds", "kind", "dim", "bytes"])
def test_a_foreign_result_with_a_wrong_value_is_refused(tmp_path, key, value):
    path = write_results([make_result()], tmp_path / "r.json")
    stored = json.loads(path.read_text())
    changed = stored["results"][0]
    (changed if key in changed else changed["descriptor"])[key] = value
    path.write_text(json.dumps(stored))
    if (key, value) == ("histogram", None):
        write_report([path], tmp_path / "report")
        return
    with pytest.raises(DataError):
        write_report([path], tmp_path / "report")
