"""Charts are well-formed SVG, leave out what is not known, and keep peaks."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from txnsegment.ui.drawing import Line, chart, thinned

SVG = "{http://www.w3.org/2000/svg}"


def parsed(*lines: Line, title: str = "Rows") -> ElementTree.Element:
    return ElementTree.fromstring(chart(title, lines, lambda value: f"{value:g} <a&b>"))


def kinds(root: ElementTree.Element) -> list[str]:
    return [one.tag for one in root if one.tag in ("polyline", "circle")]


def test_a_line_is_interrupted_where_no_value_is_known() -> None:
    points = [(0, 1.0), (1000, 2.0), (2000, None), (3000, 4.0), (4000, None), (5000, 0.0), (6000, 1.0)]
    assert kinds(parsed(Line("", points))) == ["polyline", "circle", "polyline"]


@pytest.mark.parametrize("points", [[], [(5, None)], [(5, None), (6, None)]])
def test_a_chart_without_values_says_so(points: list[tuple[int, float | None]]) -> None:
    root = parsed(Line("", points))
    assert kinds(root) == []
    assert "no data yet" in root.attrib["aria-label"]


def test_values_lie_within_the_picture_and_all_text_is_escaped() -> None:
    points = [(1_700_000_000_000 + 2000 * i, float(i % 7) * 1e12) for i in range(50)]
    root = parsed(Line("x", points), Line("y", [(1_700_000_000_000, 0.0)]), title='<script>alert("1")</script>')
    assert root.attrib["aria-label"].startswith('<script>alert("1")</script>: x ')
    for one in root.iter("polyline"):
        for pair in one.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= 360
            assert 20 <= y <= 95
    assert "script" not in {one.tag for one in root.iter()}


def test_one_value_and_equal_values_are_drawn() -> None:
    assert kinds(parsed(Line("", [(7, 3.0)]))) == ["circle"]
    assert kinds(parsed(Line("", [(7, 0.0), (8, 0.0)]))) == ["polyline"]


def test_a_long_line_is_thinned_and_keeps_its_peak() -> None:
    points: list[tuple[int, float | None]] = [(i, 1.0) for i in range(900)]
    points[437] = (437, 99.0)
    points[500] = (500, None)
    few = thinned(points, 100)
    assert len(few) == 100
    assert (437, 99.0) in few
    assert thinned(points[:50], 100) == points[:50]
