"""Charts draw each value at the right position, under labels that do not overlap."""

import itertools
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doap._support.charts import Axis, Line, Scale, Whisker, dot_chart, line_chart
from oracles.html_pages import assert_well_nested

NUMBER = r"(-?[\d.]+)"


def path_of(svg, style):
    return re.search(rf"<path class='?{style}'? d='([^']*)'", svg)[1]


def label_heights(svg):
    found = re.findall(rf"<text class='first' x={NUMBER} y={NUMBER}>([^<]*)<", svg)
    return {text: float(y) for _, y, text in found}


def draw(kind, label, value):
    """Draw a chart with two values."""
    if kind == "dot":
        rows = [Whisker(label, "real", value, value, value), Whisker("other", "binary", 2.0, 1.0, 3.0)]
        return dot_chart(label, label, rows, Axis(label), reference=value)
    lines = [Line(label, "first", [(0, value), (1, 2.0)], ["a", "b"], title=label)]
    return line_chart(label, label, lines, Axis(label), Axis(label))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["line", "dot"])
def test_values_that_are_not_finite_are_not_drawn(kind, value):
    assert not re.search(r"[=\s'MHVL](nan|-?inf)", draw(kind, "x", value))


def test_values_without_a_position_are_not_drawn_and_marks_stay_with_their_points():
    svg = line_chart(
        "", "", [Line("", "ours", [(0, 4.0), (1, 5.0), (2, 6.0)], ["a", "b", "c"])], Axis(log=True), Axis()
    )
    assert re.findall(r"<title>(\w)</title>", svg) == ["b", "c"]
    assert "No values yet" in line_chart("", "", [Line("a", "first", [(0, 1.0)])], Axis(log=True), Axis())
    assert_well_nested(dot_chart("", "", [], Axis()))


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(3, 8))
@example(0.0, 1.5, 3)  # 3 · 0.5 is a little more than 1.5 if the 0.5 is made of tenths
def test_ticks_are_few_and_within_the_axis(low, length, limit):
    ticks = Scale(low, low + length, 0, 1).ticks(limit)
    assert 1 <= len(ticks) <= limit
    assert ticks == sorted(ticks)
    slack = 1e-9 * (abs(low) + length)
    assert low - slack <= ticks[0] <= ticks[-1] <= low + length + slack


def test_points_lie_at_their_axis_positions():
    svg = line_chart("", "", [Line("", "first", [(0, 0), (5, 1), (10, 2)])], Axis(low=0, high=10), Axis(low=0, high=4))
    points = [(float(x), float(y)) for x, y in re.findall(rf"{NUMBER} {NUMBER}", path_of(svg, "first"))]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.11)
    assert y0 - y2 == pytest.approx((214 - 12) / 2, abs=0.11)


@pytest.mark.parametrize("ends", [[0.5] * 6, [0.0, 0.001, 0.002, 0.5, 0.999, 1.0], [0.0] * 6])
def test_labels_of_lines_are_a_line_apart_inside_and_the_last_drawn_is_first(ends):
    lines = [Line(f"line {number}", "first", [(0, 0.3), (1, end)]) for number, end in enumerate(ends)]
    found = label_heights(line_chart("", "", lines, Axis(), Axis(low=0, high=1)))
    heights = sorted(found.values())
    assert len(heights) == 6
    assert all(below - above >= 14.8 for above, below in itertools.pairwise(heights))
    assert heights[-1] <= 218
    assert sorted(found, key=found.__getitem__) == [f"line {number}" for number in (5, 4, 3, 2, 1, 0)]


def test_a_dot_lies_at_its_value_within_its_interval():
    rows = [
        Whisker("a-name-that-is-too-long", "real", 0.5, 0.4, 0.8, strong=True),
        Whisker("b", "binary", 0.2, 0.1, 0.3),
    ]
    svg = dot_chart("", "", rows, Axis(low=0, high=1), reference=0.5)
    begin, y, end = map(float, re.search(rf"M{NUMBER} {NUMBER}H{NUMBER}", path_of(svg, "real")).groups())
    left, top = map(float, re.search(rf"<rect class='real' x={NUMBER} y={NUMBER}", svg).groups())
    assert (left + 4 - begin) / (end - begin) == pytest.approx(0.25, abs=0.01)
    assert top + 4 == pytest.approx(y, abs=0.11)
    assert float(re.match(rf"M{NUMBER}", path_of(svg, "reference"))[1]) == pytest.approx(left + 4, abs=0.11)
    assert re.findall(r"<text class=strong[^>]*>([^<]+)", svg) == ["a-name-that-is-t…"]
    assert "<title>a-name-that-is-too-long 0.5 (0.4 to 0.8)" in svg
