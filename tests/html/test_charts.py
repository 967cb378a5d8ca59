"""Charts draw each value at the right position, under labels that do not overlap."""

import itertools
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doap._support.html import Axis, Dot, Line, Whisker, dot_chart, histogram_chart, line_chart, scatter_chart
from doap._support.html.axes import Scale
from oracles.html_pages import assert_well_nested

NAME = "<b>&'\""
NUMBER = r"(-?[\d.]+)"


def pairs(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(rf"{NUMBER} {NUMBER}", path)]


def path_of(svg: str, style: str) -> str:
    return re.search(rf"<path class='?{style}'? d='([^']*)'", svg)[1]


def texts(svg: str, style: str) -> dict[str, tuple[float, float]]:
    found = re.findall(rf"<text{style} x={NUMBER} y={NUMBER}>([^<]*)<", svg)
    return {text: (float(x), float(y)) for x, y, text in found}


def every_chart(label: str, value: float) -> dict[str, str]:
    """Draw one chart of each kind with two values."""
    dots = [Dot(label, "real", 8, value, label), Dot("other", "binary", 16, 2.0, "")]
    rows = [Whisker(label, "real", value, value, value), Whisker("other", "binary", 2.0, 1.0, 3.0)]
    lines = [Line(label, "first", [(0, value), (1, 2.0)], ["a", "b"], title=label)]
    shares = [("matches", [0.25, 0.75])]
    return {
        "line": line_chart(label, label, lines, Axis(label), Axis(label)),
        "dot": dot_chart(label, label, rows, Axis(label), reference=value),
        "scatter": scatter_chart(label, label, dots, Axis(label, base=2), Axis(label), "higher"),
        "histogram": histogram_chart(label, label, [0, 1, 2], shares),
    }


@pytest.mark.parametrize("kind", ["line", "dot", "scatter", "histogram"])
def test_text_is_escaped_and_tags_are_nested(kind: str) -> None:
    svg = every_chart(NAME, 1.0)[kind]
    assert "<b>" not in svg
    assert "&lt;b&gt;&amp;&#x27;&quot;" in svg
    assert_well_nested(svg)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["line", "dot", "scatter"])
def test_values_that_are_not_finite_are_not_drawn(kind: str, value: float) -> None:
    assert not re.search(r"[=\s'MHVL](nan|-?inf)", every_chart("x", value)[kind])


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_values_without_a_position_on_a_logarithmic_axis_are_not_drawn(value: float) -> None:
    log, plain = Axis(base=10), Axis()
    lines = [line_chart("", "", [Line("a", "ours", points)], log, plain) for points in ([(value, 5.0)], [])]
    assert lines[0] == lines[1]
    dots = [Dot("a", "ours", 1.0, 2.0, "a"), Dot("b", "ours", value, 3.0, "b")]
    assert scatter_chart("", "", dots, log, plain) == scatter_chart("", "", dots[:1], log, plain)


def test_a_chart_without_values_shows_a_note() -> None:
    assert "No values yet" in line_chart("", "", [Line("a", "first", [(0, math.nan)])], Axis(), Axis())
    assert "No values yet" in line_chart("", "", [], Axis(), Axis())
    assert_well_nested(dot_chart("", "", [], Axis()) + scatter_chart("", "", [], Axis(base=2), Axis(), "lower"))


def test_a_mark_stays_with_its_point_where_others_are_not_finite() -> None:
    svg = line_chart("", "", [Line("", "ours", [(0, math.nan), (1, 5.0), (2, 6.0)], ["a", "b", "c"])], Axis(), Axis())
    assert re.findall(r"<title>(\w)</title>", svg) == ["b", "c"]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(3, 8))
@example(0.0, 1.5, 3)  # 3 · 0.5 is a little more than 1.5 if the 0.5 is made of tenths
def test_ticks_are_few_and_within_the_axis(low: float, length: float, limit: int) -> None:
    ticks = Scale(low, low + length, 0, 1).ticks(limit)
    assert 1 <= len(ticks) <= limit
    assert ticks == sorted(ticks)
    slack = 1e-9 * (abs(low) + length)
    assert low - slack <= ticks[0] <= ticks[-1] <= low + length + slack


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(20, 900, 0, 1, base=2), [32, 64, 128, 256, 512]),
        (Scale(0.008, 0.3, 0, 1, base=10), [0.01, 0.02, 0.05, 0.1, 0.2]),
        (Scale(0.5, 3000, 0, 1, base=10), [1, 10, 100, 1000]),
        (Scale(1.08, 1.63, 0, 1, base=10), [1.1, 1.2, 1.3, 1.4, 1.5, 1.6]),
        (Scale(0.9, 1.9, 0, 1, base=10), [1, 1.2, 1.4, 1.6, 1.8]),
    ],
)
def test_ticks_of_logarithmic_axes(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks(6) == pytest.approx(ticks)


def test_equal_ratios_are_equal_lengths_on_a_logarithmic_axis() -> None:
    scale = Axis(low=1, high=16, base=2).scale([], 0, 100)
    assert [scale(value) for value in (1, 2, 4, 16)] == pytest.approx([0, 25, 50, 100])


def test_points_lie_at_their_axis_positions() -> None:
    svg = line_chart("", "", [Line("", "first", [(0, 0), (5, 1), (10, 2)])], Axis(low=0, high=10), Axis(low=0, high=4))
    (x0, y0), (x1, y1), (x2, y2) = pairs(path_of(svg, "first"))
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.11)
    assert y0 - y2 == pytest.approx((214 - 12) / 2, abs=0.11)


@pytest.mark.parametrize("ends", [[0.5] * 6, [0.0, 0.001, 0.002, 0.5, 0.999, 1.0], [0.0] * 6])
def test_labels_of_lines_are_a_line_apart_and_inside(ends: list[float]) -> None:
    lines = [Line(f"line {number}", "first", [(0, 0.3), (1, end)]) for number, end in enumerate(ends)]
    svg = line_chart("", "", lines, Axis(), Axis(low=0, high=1))
    heights = sorted(y for _, y in texts(svg, " class='first'").values())
    assert len(heights) == 6
    assert all(below - above >= 14.8 for above, below in itertools.pairwise(heights))
    assert heights[-1] <= 218


def test_the_last_drawn_of_lines_with_equal_ends_is_named_first() -> None:
    lines = [Line(name, "first", [(0, 0), (1, 1)]) for name in ("third", "second", "best")]
    found = texts(line_chart("", "", lines, Axis(), Axis()), " class='first'")
    assert sorted(found, key=lambda name: found[name][1]) == ["best", "second", "third"]


def test_a_long_curve_keeps_its_shape_in_few_points() -> None:
    points = [(x / 100_000, math.sin(x / 10_000)) for x in range(100_001)]
    axes = Axis(low=0, high=1), Axis(low=-1, high=1)
    drawn = pairs(path_of(line_chart("", "", [Line("", "first", points)], *axes), "first"))
    assert len(drawn) < 1500
    x, y = Scale(0, 1, 46, 330), Scale(-1, 1, 214, 12)
    assert drawn[0] == pytest.approx((x(points[0][0]), y(points[0][1])), abs=0.06)
    assert drawn[-1] == pytest.approx((x(points[-1][0]), y(points[-1][1])), abs=0.06)
    assert max(math.dist(one, other) for one, other in itertools.pairwise(drawn)) < 2


def test_a_dot_lies_at_its_value_within_its_interval() -> None:
    rows = [Whisker("a", "real", 0.5, 0.4, 0.8, strong=True), Whisker("b", "binary", 0.2, 0.1, 0.3)]
    svg = dot_chart("", "", rows, Axis(low=0, high=1), reference=0.5)
    begin, y, end = map(float, re.search(rf"M{NUMBER} {NUMBER}H{NUMBER}", path_of(svg, "real")).groups())
    left, top = map(float, re.search(rf"<rect class='real' x={NUMBER} y={NUMBER}", svg).groups())
    assert (left + 4 - begin) / (end - begin) == pytest.approx(0.25, abs=0.01)
    assert top + 4 == pytest.approx(y, abs=0.11)
    assert float(re.match(rf"M{NUMBER}", path_of(svg, "reference"))[1]) == pytest.approx(left + 4, abs=0.11)
    assert "a 0.5 (0.4 to 0.8)" in svg
    assert re.findall(r"<text class=strong[^>]*>(\w+)", svg) == ["a"]


def test_a_long_label_is_shortened_and_complete_in_its_tooltip() -> None:
    svg = dot_chart("", "", [Whisker("a-name-that-is-too-long", "real", 0.5, 0.4, 0.6)], Axis())
    assert ">a-name-that-is-t…<" in svg
    assert "<title>a-name-that-is-too-long 0.5" in svg


def test_labels_of_dots_overlap_neither_labels_nor_dots() -> None:
    dots = [Dot(f"name-{number}", "real", 32 * 2 ** (number % 3), 0.5 + number / 60, "") for number in range(17)]
    svg = scatter_chart("", "", dots, Axis("bytes", base=2), Axis("mAP"))
    labels = re.findall(rf"<text x={NUMBER} y={NUMBER} text-anchor=(\w+)>(name-\d+)<", svg)
    assert len(labels) >= 15
    boxes = []
    for x, y, anchor, name in labels:
        left = float(x) - (7 * len(name) if anchor == "end" else 0)
        boxes.append((left, float(y) - 10, left + 7 * len(name), float(y) + 2))
    for left, top in re.findall(rf"<rect class='real' x={NUMBER} y={NUMBER}", svg):
        boxes.append((float(left), float(top), float(left) + 8, float(top) + 8))
    for index, one in enumerate(boxes[: len(labels)]):
        for other in boxes[index + 1 :]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] + 1 or other[3] <= one[1] + 1


def test_no_label_is_right_beside_the_dot_of_another() -> None:
    """Twenty dots in a small part of the chart, where a reader could confuse them."""
    dots = [Dot(f"name-{number}", "real", 1 + number / 40, 0.5 + number * 7 % 20 / 50, "") for number in range(20)]
    dots += [Dot("name-20", "pipeline", 20, 0.1, ""), Dot("name-21", "binary", 0.1, 1.5, "")]
    svg = scatter_chart("", "", dots, Axis("seconds", base=10), Axis("AUC"), height=380)
    marks = re.findall(rf"<rect class='(\w+)' x={NUMBER} y={NUMBER}", svg)
    assert [style for style, _, _ in marks] == ["real"] * 20 + ["pipeline", "binary"]
    centres = [(float(x) + 4, float(y) + 4) for _, x, y in marks]
    labels = re.findall(rf"<text x={NUMBER} y={NUMBER} text-anchor=(?:start|end)>name-(\d+)<", svg)
    assert len(labels) >= 20
    for x, y, number in labels:
        for other, (at, height) in enumerate(centres):
            if other != int(number):
                assert abs(float(x) - at) >= 11.9 or abs(float(y) - 4 - height) >= 10.9


@pytest.mark.parametrize(("better", "steps"), [("higher", [0.3, 0.6]), ("lower", [0.2, 0.1])])
def test_no_dot_lies_beyond_the_frontier(better: str, steps: list[float]) -> None:
    values = {8: [0.3, 0.2], 16: [0.25], 32: [0.6, 0.1]}
    dots = [Dot("", "real", size, value, "") for size, several in values.items() for value in several]
    path = path_of(scatter_chart("", "", dots, Axis(base=2), Axis(low=0, high=1), better), "reference")
    scale = Scale(0, 1, 260, 24)
    heights = [float(re.match(rf"M{NUMBER} {NUMBER}", path)[2]), *map(float, re.findall(rf"V{NUMBER}", path))]
    assert heights == pytest.approx([scale(step) for step in steps], abs=0.06)


def test_bars_are_as_high_as_their_shares() -> None:
    path = path_of(histogram_chart("", "", [0, 1, 3], [("matches", [0.25, 0.5])]), "matches")
    low, high, bottom = map(float, re.findall(rf"V{NUMBER}", path))
    assert (bottom - low) / (bottom - high) == pytest.approx(0.5, abs=0.01)
    first, second = (float(end) for end in re.findall(rf"H{NUMBER}", path))
    start = float(re.match(rf"M{NUMBER}", path)[1])
    assert (first - start) / (second - start) == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize(("low", "high"), [(1e15, 1e15), (1e15, 1e15 + 0.25), (2.0, 1.0), (0.0, 0.0)])
def test_an_axis_without_a_range_has_one_tick(low: float, high: float) -> None:
    assert Scale(low, high, 0, 1).ticks(6) == [low]
