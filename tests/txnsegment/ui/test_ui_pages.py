"""Pages show what is on the board. Text from a cluster is text on a page, whatever characters it has."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import pytest

from ledgers.plain_text import HARMFUL
from metadata.client.transactions import TransactionDescription
from metadata.read.backlog import Lag
from metadata.records.driver_records import DriverReport, ReadFigures
from metadata.records.records import SegmentState, State
from txnsegment.findings import Finding, Health
from txnsegment.look.drivers import drivers
from txnsegment.look.seen import (
    LogSeen,
    PersistentSeen,
    Seen,
    SegmentSeen,
    Size,
    SubscriptionSeen,
    SweepsSeen,
    TopicSeen,
    with_problem,
)
from txnsegment.look.watcher import Board, Trouble
from txnsegment.topics import SegmentDescription
from txnsegment.ui.pages import PAGES, Pages

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}{% raw %}\x1b[2J\u202e\x00]]>&amp;javascript:alert(1)"
"""Text that would run, break out of an attribute, a template or a terminal, or turn the direction of a line."""


class Tags(HTMLParser):
    """Collects the tags, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def board(text: str) -> Board:
    """Return a board on which each text is the given one."""
    segment = SegmentDescription(text, 0, 0, 0xFFFF, SegmentState.ACTIVE, (), (), 0, None)
    child = dataclasses.replace(segment, id=1, parents=(0,), sealed_ms=5, state=SegmentState.SEALED)
    segments = (SegmentSeen(segment, Size(3, 30, 1), 2), SegmentSeen(child, Size(1, 10, 1), 0, 4))
    topic = TopicSeen(text, text, 2, segments, 7, 2, Size(1, 1, 1), ((8, text),))
    open_one = TransactionDescription(text, State.OPEN, text, text, 1, text, 1000, 2000, None, None, (text,))
    ended = TransactionDescription(text, State.ABORTED, text, text, 1, text, 1000, 2000, 3000, 5)
    report = DriverReport(
        owner=text,
        program=text,
        since_ms=1000,
        at_ms=40_000,
        every_ms=15_000,
        applications=(text, text),
        commits=4,
        conflicts=1,
        rows=1234,
        bytes=5000,
        rows_read=9,
        commit_us=2_000_000,
        buckets=(1, 1, 1, 0, 1, 0, 0, 0),
        last_commit_ms=39_000,
        reads=(ReadFigures(what=text, lag=77, subscription=text, more=True), ReadFigures(what=text, lag=1)),
    )
    done = TransactionDescription("0_1", State.COMMITTED, None, "", 1, None, 1000, 2000, 3000, 5)
    return Board(
        seen=Seen(
            url=text,
            ledgers=text,
            now_ms=100_000,
            log=LogSeen(3, 9),
            topics=(topic, with_problem(text + "2", text)),
            topic_count=300,
            persistent=(PersistentSeen(text, 1, True, text), PersistentSeen(text, 1, True, None)),
            open=(open_one,),
            ended=(ended,),
            sweeps=SweepsSeen(99_000, text, 1, text, 1, 1),
            drivers=drivers([report], [open_one], 100_000),
            driver_count=101,
        ),
        at_s=10.0,
        trouble=Trouble(text, text, 5.0),
        ended=(ended, done),
        subscriptions=(SubscriptionSeen(text, text, Lag(5, 50, 1.0), True, 2), SubscriptionSeen(text, text, problem=text)),
        findings=(
            Finding("store", Health.OK, text),
            Finding("log", Health.WARN, text, text),
            Finding("x", Health.FAIL, text, text),
        ),
        findings_ms=5,
    )


def pages(shown: Board, name: str) -> dict[str, str]:
    made = Pages()
    return {
        "overview": made.overview(shown, 12.0),
        "filtered": made.overview(shown, 12.0, name),
        "topic": made.topic(shown, 12.0, name),
        "transactions": made.transactions(shown, 12.0),
        "open": made.transactions(shown, 12.0, "open"),
        "state": made.transactions(shown, 12.0, name),
        "drivers": made.drivers(shown, 12.0),
        "subscriptions": made.subscriptions(shown, 12.0),
        "storage": made.storage(shown, 12.0),
        "health": made.health(shown, 12.0),
    }


def test_hostile_text_of_a_cluster_adds_no_tag_and_no_attribute() -> None:
    harmless, hostile = pages(board("harmless"), "harmless"), pages(board(HOSTILE), HOSTILE)
    for name, page in hostile.items():
        found, same = Tags(page), Tags(harmless[name])
        assert [tag for tag, _ in found.tags] == [tag for tag, _ in same.tags], name
        assert [set(attributes) for _, attributes in found.tags] == [set(attributes) for _, attributes in same.tags], name
        assert "{{7*7}}" in found.text or name == "state"
        assert not HARMFUL.search(page.replace("\n", "").replace("\t", "")), name
        for tag, attributes in found.tags:
            target = attributes.get("href") or attributes.get("src") or attributes.get("action") or "/"
            assert target.startswith("/"), (name, tag, target)


@pytest.mark.parametrize(
    "shown",
    [
        Board(),
        Board(trouble=Trouble("The server is gone.", "Start it.", 0.0)),
        Board(seen=Seen("file:///c", "file:///l", 5, LogSeen(0, 0)), at_s=12.0),
        Board(seen=Seen("file:///c", "file:///l", 5, LogSeen(0, 0)), at_s=-500.0),
    ],
    ids=["nothing yet", "trouble from the start", "an empty cluster", "no answer for long"],
)
def test_each_page_can_be_made_before_and_without_a_look(shown: Board) -> None:
    for name, page in pages(shown, "t").items():
        text = Tags(page).text
        assert ("The server is gone. Start it." in " ".join(text.split())) == (shown.trouble is not None), name
        assert ("first look" in text) == (shown == Board()), name
        assert ("has not answered for" in text) == (shown.seen is not None and shown.at_s < 0), name


def test_the_figures_are_on_the_pages() -> None:
    found = {name: " ".join(Tags(page).text.split()) for name, page in pages(board("topic://a/b/c"), "topic://a/b/c").items()}
    assert "1 past the deadline" in found["overview"]
    assert "The cluster has 300 topics; the first 2 by name are read." in found["overview"]
    assert "Readers get no row above number 7" in found["topic"]
    assert "1 committed rows above the horizon" in found["topic"]
    assert "more than 5" in found["subscriptions"]
    assert "silent, 1 min" in found["drivers"]
    assert "topic://a/b/c (topic://a/b/c): more than 77 rows behind; topic://a/b/c: 1 rows behind" in found["drivers"]
    assert "101 reports were found" in found["drivers"]
    assert "leads, since" in found["storage"]
    assert "ABORTED" in found["transactions"]
    assert "Was open for" in found["transactions"]
    assert "Was open for" not in found["open"]
    assert "txnsegment doctor" in found["health"]


def test_a_page_marks_itself_and_names_all_others() -> None:
    for (path, title), page in zip(PAGES, list(pages(board("t"), "t").values())[::1], strict=False):
        links = [attributes for tag, attributes in Tags(page).tags if tag == "a"]
        assert {p for p, _ in PAGES} <= {one["href"] for one in links}
        assert path.startswith("/")
        assert title


def test_a_topic_that_does_not_exist_is_told_from_one_that_was_not_read() -> None:
    shown = board("t")
    assert "The next look includes this topic" in Pages().topic(shown, 12.0, "none")
    assert shown.seen is not None
    whole = dataclasses.replace(shown, seen=dataclasses.replace(shown.seen, topic_count=2))
    assert "There is no such topic" in Pages().topic(whole, 12.0, "none")
