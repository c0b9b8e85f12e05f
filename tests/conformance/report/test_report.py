"""Tests of the report: its text, its JSON, its HTML page and its pictures."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.history.findings import Finding
from conformance.history.format import Commit, Event, Fault, Header, Read, Registration, Start, Told, Watermark, Written
from conformance.report import histories
from conformance.report.document import ReportError, check_file, from_json, to_json, write
from conformance.report.html import page
from conformance.report.markup import visible
from conformance.report.pictures import THIN, chart, period, rows_of, timeline
from conformance.report.run import Report
from conformance.report.text import full, number, summary
from conformance.results import Outcome, Result, Series, Span, exit_code

TRAP = "</script><script>alert('x')</script> & \x00 \ud800 \x1b[31m"
HISTORY = (
    Span("t1", "put 'a' -> version 0", 10.0, 10.5),
    Span("t2", "put 'b' -> done", 10.2, 10.4),
    Span("t2", "get -> 'b'", 10.3, 10.9, wrong=True),
    Span("t3", f"delete {TRAP}", 10.6, None),
)
RESULTS = (
    Result("store", "records/put", "protocol.md section 3", "A put is kept.", Outcome.OK, 0.25, 7),
    Result(
        "store",
        "sizes/many",
        "protocol.md section 3",
        "Many fit.",
        Outcome.OK,
        2.0,
        7,
        figures={"records": 1000.0, "get, s": 0.0125},
    ),
    Result(
        "store", "crashes/kill", "protocol.md section 3", "A kill loses nothing.", Outcome.NOT_APPLICABLE, 0.0, 7, "One process."
    ),
    Result(
        "store",
        "histories/threads",
        "protocol.md section 3",
        "Every answer fits one order.",
        Outcome.FAILED,
        1.5,
        7,
        f"Line one.\nLine two: {TRAP}",
        history=HISTORY,
        again=("--store", "memory://a b", "--only", "histories/threads", "--seed", "7"),
    ),
    Result(
        "cluster",
        "exactly once",
        "8",
        "Nothing is lost.",
        Outcome.OK,
        60.0,
        7,
        figures={"rows": 5000.0},
        history=(Span("writer", "driver-kill", 2.0, 4.0), Span("all", "cut", 6.0, 7.5)),
        series=(
            Series("rows committed", "rows/s", ((0.5, 100.0), (1.5, 0.0), (9.5, 50.0))),
            Series("latency", "s", ((1.0, 0.5), (8.0, 3.0)), dots=True),
        ),
        note="two faults",
    ),
)
REPORT = Report(
    ("--store", "memory://a b", "--seed", "7"), 7, 1_700_000_000_000, 63.75, RESULTS, 1, "0.1.0", "3.11.7", "Linux x86_64"
)


# --- text ---------------------------------------------------------------------------------------------------------


def test_the_text_report_contains_every_result() -> None:
    plain = replace(REPORT, results=(*RESULTS[:3], replace(RESULTS[3], detail="Line one.\nLine two."), RESULTS[4]))
    assert full(plain) == (
        "python -m conformance --store 'memory://a b' --seed 7\n"
        "2023-11-14 22:13:20 UTC, txnsegment 0.1.0, Python 3.11.7, Linux x86_64\n"
        "seed 7\n"
        "\n"
        "ok: records/put (0.2 s)\n"
        "ok: sizes/many (2.0 s): records: 1000; get, s: 0.0125\n"
        "not applicable: crashes/kill (0.0 s)\n"
        "    protocol.md section 3: A kill loses nothing.\n"
        "    One process.\n"
        "failed: histories/threads (1.5 s)\n"
        "    protocol.md section 3: Every answer fits one order.\n"
        "    Line one.\n"
        "    Line two.\n"
        "    again: python -m conformance --store 'memory://a b' --only histories/threads --seed 7\n"
        "store: 4 results: 2 ok, 1 failed, 1 not applicable; 3.8 s\n"
        "ok: exactly once (60.0 s): rows: 5000; two faults\n"
        "cluster: 1 results: 1 ok, 0 failed, 0 not applicable; 60.0 s\n"
    )


def test_a_summary_omits_unremarkable_results_and_figures() -> None:
    lines = summary(RESULTS).splitlines()
    assert not any("records/put" in line for line in lines)
    assert sum("sizes/many" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.0, "3"),
        (1234.5, "1234"),
        (0.0125, "0.0125"),
        (0.0000654, "0.000065"),
        (-2.5, "-2.5"),
        (1e15, "1000000000000000"),
    ],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


# --- JSON ---------------------------------------------------------------------------------------------------------


def test_a_report_round_trips_through_json() -> None:
    sound = replace(REPORT, results=tuple(replace(r, detail="", history=r.history[:3]) for r in RESULTS))
    assert from_json(to_json(sound)) == sound


def test_json_of_another_form_is_refused() -> None:
    written = to_json(replace(REPORT, results=()))
    with pytest.raises(ReportError, match="format 2"):
        from_json(written.replace('"format": 1', '"format": 2'))
    with pytest.raises(ReportError, match="no report"):
        from_json('{"results": []}')
    with pytest.raises(ReportError, match="no report"):
        from_json("half a li")


def test_json_has_no_figure_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(replace(REPORT, results=(replace(RESULTS[0], figures={"x": float("nan")}),)))


def test_files_are_written_by_their_suffix(tmp_path: Path) -> None:
    for suffix, begins in ((".txt", "python -m conformance"), (".json", "{"), (".html", "<!doctype html>")):
        write(REPORT, tmp_path / f"report{suffix}")
        assert (tmp_path / f"report{suffix}").read_bytes().decode().startswith(begins)
    again = from_json((tmp_path / "report.json").read_text())
    assert again.results[:3] == RESULTS[:3]
    assert again.results[3].detail == RESULTS[3].detail.replace("\ud800", "\\ud800")
    with pytest.raises(ReportError, match=r"\.pdf.*\.txt, \.json, \.html"):
        check_file(tmp_path / "report.pdf")
    with pytest.raises(ReportError, match="folder does not exist"):
        check_file(tmp_path / "nowhere" / "report.txt")


def test_exit_codes() -> None:
    ok, not_shown, failed = RESULTS[0], RESULTS[2], RESULTS[3]
    assert exit_code([ok, not_shown]) == 0
    assert exit_code([ok, failed, not_shown]) == 1
    assert exit_code([not_shown]) == 2
    assert exit_code([]) == 2


# --- the page -----------------------------------------------------------------------------------------------------

VOID = {"meta", "br", "link", "img"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str, kind: str = "") -> list[Element]:
        """Return this element and all elements inside it that have the tag and the class `kind` ("": any class)."""
        found = [self] if self.tag == tag and (not kind or kind in self.attributes.get("class", "").split()) else []
        return found + [each for child in self.children for each in child.all(tag, kind)]

    def whole(self) -> str:
        return self.text + "".join(child.whole() for child in self.children)


class Tree(HTMLParser):
    """A parser that fails if a tag is not closed in the right place."""

    def __init__(self, given: str) -> None:
        super().__init__()
        self.open = [Element("", {})]
        self.feed(given)
        self.close()
        assert len(self.open) == 1, [e.tag for e in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].text += data


def parsed(report: Report) -> Element:
    return Tree(page(report).encode().decode()).open[0]


def test_the_page_has_a_row_for_each_result() -> None:
    tree = parsed(REPORT)
    (table,) = tree.all("table")
    rows = [row for row in table.all("tr") if row.all("td")]
    assert [[cell.whole() for cell in row.all("td")][:2] for row in rows] == [[str(r.outcome), r.name] for r in RESULTS]
    assert [row.attributes["class"] for row in rows] == ["ok", "ok", "na", "failed", "ok"]
    assert "One process." in rows[2].whole()
    assert rows[1].all("td")[4].whole() == "records: 1000; get, s: 0.0125"
    assert [head.whole() for head in table.all("th") if head.attributes["scope"] == "rowgroup"] == [
        "store: 2 ok, 1 failed, 1 not applicable",
        "cluster: 1 ok, 0 failed, 0 not applicable",
    ]
    assert tree.all("title")[0].whole() == "Conformance: 1 of 5 failed"
    assert "'memory://a b'" in tree.all("dl")[0].whole()


def test_the_page_loads_nothing_and_runs_no_script() -> None:
    tree, text = parsed(REPORT), page(REPORT)
    assert not tree.all("script")
    assert not tree.all("link")
    assert not tree.all("img")
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert {a.attributes["href"] for a in tree.all("a")} == {f"#{s.attributes['id']}" for s in tree.all("section")}
    assert {place.removeprefix("#") for place in re.findall(r"url\(([^)]*)\)", text)} < set(ids)
    assert {use.attributes["href"].removeprefix("#") for use in tree.all("use")} < set(ids)
    assert not re.findall(r"https?://[^\"' ]*", text)
    assert not re.search(r"\son[a-z]+=", text)


def test_a_failed_result_has_a_timeline_and_its_command() -> None:
    tree = parsed(REPORT)
    section = next(s for s in tree.all("section") if "histories/threads" in s.all("h2")[0].whole())
    assert "Line one.\nLine two" in section.all("pre")[0].whole()
    assert section.all("code")[0].whole() == "python -m conformance --store 'memory://a b' --only histories/threads --seed 7"
    (drawn,) = section.all("svg")
    assert [lane.all("title")[0].whole() for lane in drawn.all("g", "lane")] == ["t1", "t2", "t3"]
    assert len(drawn.all("g", "span")) == len(HISTORY)
    assert [g.all("title")[0].whole().splitlines()[0] for g in drawn.all("g", "wrong")] == ["t2: get -> 'b'"]
    (endless,) = drawn.all("g", "open")
    assert endless.all("title")[0].whole().endswith("to no answer")
    assert [li.whole() for li in section.all("li")] == ["t2: get -> 'b'"]


def test_values_over_time_have_charts_with_the_faults() -> None:
    section = next(s for s in parsed(REPORT).all("section") if "exactly once" in s.all("h2")[0].whole())
    rate, latency, faults = section.all("svg")
    assert len(re.findall("[ML]", rate.all("g", "values")[0].all("path")[0].attributes["d"])) == 3
    assert len(latency.all("g", "values")[0].all("use")) == 2
    bands = [[g.all("path")[0].attributes["d"] for g in drawn.all("g", "fault")] for drawn in (rate, latency)]
    assert bands[0] == bands[1], "charts below each other have one axis of time"
    for drawn in (rate, latency):
        assert [g.all("title")[0].whole() for g in drawn.all("g", "fault")] == ["1: writer: driver-kill", "2: all: cut"]
    assert len(faults.all("g", "span")) == 2


@pytest.mark.parametrize("text", [TRAP, "a\tb\nc", "\x7f", "ü→\U0001f600"])
def test_any_text_can_be_part_of_a_page(text: str) -> None:
    shown = visible(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", shown)
    section = parsed(replace(REPORT, results=(replace(RESULTS[3], detail=text),))).all("section")[0]
    assert section.all("pre")[0].whole() == shown


# --- pictures -----------------------------------------------------------------------------------------------------

spans = st.lists(
    st.builds(
        lambda actor, began, took, wrong: Span(
            f"actor {actor}", "does something", began, None if took is None else began + took, wrong
        ),
        st.integers(0, 3),
        st.floats(0, 1000),
        st.none() | st.floats(0, 500),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@given(spans)
def test_spans_in_a_row_of_a_timeline_do_not_overlap(given_spans: list[Span]) -> None:
    lanes = rows_of(sorted(given_spans, key=lambda span: span.began), 2000.0, 2000 * THIN)
    assert sum(len(row) for rows in lanes.values() for row in rows) == len(given_spans)
    for actor, rows in lanes.items():
        for row in rows:
            assert all(span.actor == actor and end > span.began for span, end in row)
            assert all(end <= after.began for (_, end), (after, _) in itertools.pairwise(row))


def test_a_timeline_shows_any_text_and_any_span() -> None:
    shown = [
        Span("$a_$", "costs $5_ and $6^", 5.0, 5.0),
        Span("a" * 40, TRAP, 5.0, None, wrong=True),
        Span("b", "\U0001f600", 5.0, 5.0),
    ]
    drawn = timeline(shown, "s", "x", "one")
    titles = [title.text or "" for title in drawn.findall(".//title")]
    assert "$a_$: costs $5_ and $6^\n0 to 0" in titles
    assert "a" * 40 in titles


def test_a_long_history_keeps_findings_and_their_surroundings() -> None:
    many = [Span("a", str(i), i, i + 0.5, wrong=i == 700) for i in range(1000)]
    kept = histories.chosen(many, 101)
    assert [int(span.label) for span in kept] == list(range(650, 751))
    assert histories.chosen(many[:50]) == many[:50]
    assert [span.label for span in histories.chosen(many[:100], 2)] == ["98", "99"]


def test_a_chart_of_one_point_and_of_nothing_but_zeros() -> None:
    for points in (((5.0, 0.0),), ((5.0, 0.0), (6.0, 0.0))):
        drawn = chart(Series("x", "1", points), (), "s", period([Series("x", "1", points)], ()), "one")
        assert ET.tostring(drawn)
        (line,) = drawn.findall(".//g[@class='values']/path")
        assert len(re.findall("[ML]", line.attrib["d"])) == len(points)


# --- histories ----------------------------------------------------------------------------------------------------


def test_a_history_as_spans() -> None:
    rows = (Written("r1"), Written("r2"))
    late = Read(9, 8, "reader", ("t",), (), cut=1)
    events: list[Event] = [
        Start(0, "test", "events"),
        Commit(1, "c1", "d1", "q", "t", 0, rows),
        Header(2, "0_1", "OPEN", "q", "t", 0),
        Registration(3, 1, "0_1"),
        Header(4, "0_1", "COMMITTED", commit=1),
        Told(5, "c1", "committed"),
        Registration(6, 1, "0_1", "COMMITTED"),
        Commit(7, "c2", "d2", "q", "t", 1, ()),
        late,
        Watermark(10, "segment://a/b/t/0000-ffff-0", (1, 0)),
        Fault(11, "kill d2"),
    ]
    found = histories.spans(events, [Finding(9, "stale read", "x", (late,))])
    assert histories.clock(events) == "events"
    assert found == (
        Span("d1", "commit v0 of q, 2 rows → committed", 1, 5),
        Span("txn 0_1", "OPEN v0 of q", 2, 4),
        Span("log", "1 of 0_1 → COMMITTED", 3, 6),
        Span("txn 0_1", "COMMITTED, commit 1", 4, 4),
        Span("d2", "commit v1 of q, 0 rows", 7, None),
        Span("reader", "read 0 rows, cut 1", 8, 9, wrong=True),
        Span("watermarks", "t/0000-ffff-0 1:0", 10, 10),
        Span("faults", "kill d2", 11, 11),
    )
    assert histories.series(events) == ()


def test_rate_and_latency_of_a_history_in_ms() -> None:
    three = tuple(Written(f"r{i}") for i in range(3))
    events: list[Event] = [
        Start(0, "test"),
        Commit(1_000, "c1", "d", "q", "t", 0, three),
        Told(1_500, "c1", "committed"),
        Commit(2_000, "c2", "d", "q", "t", 1, three),
        Told(3_250, "c2", "committed"),
        Commit(3_300, "c3", "d", "q", "t", 2, three),
        Told(3_400, "c3", "unknown"),
    ]
    rate, gaps, latency = histories.series(events)
    assert (rate.unit, rate.points) == ("rows/s", ((2.0, 3.0), (3.0, 3.0)))
    assert (gaps.unit, gaps.dots, gaps.points) == ("s", True, ((3.25, 1.75),))
    assert (latency.unit, latency.dots, latency.points) == ("s", True, ((1.5, 0.5), (3.25, 1.25)))
    assert histories.spans(events)[0] == Span("d", "commit v0 of q, 3 rows → committed", 1.0, 1.5)
