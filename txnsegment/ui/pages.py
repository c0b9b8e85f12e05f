"""Makes the HTML of each page from the board. All text is escaped: characters of HTML by Jinja2, control characters by us."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ledgers.plain_text import shown
from txnsegment import lineage
from txnsegment.findings import Health
from txnsegment.formats import duration, moment, number, size
from txnsegment.look.samples import Sample
from txnsegment.look.seen import TopicSeen, age_s, committed, worst
from txnsegment.look.watcher import Board
from txnsegment.ui.drawing import Line, chart, thinned

PAGES = (
    ("/", "Overview"),
    ("/transactions", "Transactions"),
    ("/drivers", "Drivers"),
    ("/subscriptions", "Subscriptions"),
    ("/storage", "Storage and sweeps"),
    ("/health", "Health"),
)


def _text(value: Any) -> Any:
    """Return what a page shows for a value: nothing for None, and control characters escaped."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else shown(str(value))


def _quoted(text: str) -> str:
    """Return a text as a part of a URL."""
    return quote(text, safe="", errors="replace")


class Pages:
    """The pages. They read the board only."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("txnsegment.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_text,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "duration": duration,
            "moment": moment,
            "number": number,
            "bytes": size,
            "quoted": _quoted,
        }
        self._environment.tests["committed"] = committed

    def _page(self, template: str, here: str, title: str, board: Board, now_s: float, **more: Any) -> str:
        late_s = now_s - board.at_s
        context = {
            "title": title,
            "here": here,
            "pages": PAGES,
            "board": board,
            "seen": board.seen,
            "late_s": late_s,
            "is_late": board.is_late(now_s),
            "trouble_s": 0.0 if board.trouble is None else now_s - board.trouble.since_s,
            "health": worst(board.findings),
            "Health": Health,
            "age_s": age_s,
        }
        return self._environment.get_template(template).render(context | more)

    def overview(self, board: Board, now_s: float, query: str = "") -> str:
        topics = () if board.seen is None else tuple(t for t in board.seen.topics if query.lower() in t.name.lower())
        rates = board.samples[-1].rows_of if board.samples else {}
        newest = board.samples[-1] if board.samples else None
        more = {"query": query, "topics": topics, "rates": rates, "newest": newest, "charts": charts(board.samples)}
        return self._page("overview.html", "/", "Overview", board, now_s, **more)

    def topic(self, board: Board, now_s: float, name: str) -> str:
        topic = None if board.seen is None else board.seen.topic(name)
        is_missing = topic is None and board.seen is not None and board.seen.topic_count == len(board.seen.topics)
        return self._page(
            "topic.html",
            "/topic",
            name,
            board,
            now_s,
            name=name,
            topic=topic,
            is_missing=is_missing,
            picture=None if topic is None or not topic.segments else drawn(topic),
            chart=_chart(
                board.samples, "Rows a second", (("", lambda s: s.rows_of.get(name, 0.0) if s.rows is not None else None),), number
            ),
            subscriptions=[s for s in board.subscriptions or () if s.topic == name],
        )

    def transactions(self, board: Board, now_s: float, state: str = "") -> str:
        wanted = state.upper()
        ended = [t for t in board.ended if wanted in ("", t.state)]
        open_ones = [] if board.seen is None or wanted not in ("", "OPEN") else board.seen.open
        more = {"state": wanted, "open": open_ones, "ended": ended, "charts": charts(board.samples)[1:3]}
        return self._page("transactions.html", "/transactions", "Transactions", board, now_s, **more)

    def drivers(self, board: Board, now_s: float) -> str:
        return self._page("drivers.html", "/drivers", "Drivers", board, now_s)

    def subscriptions(self, board: Board, now_s: float) -> str:
        return self._page("subscriptions.html", "/subscriptions", "Subscriptions", board, now_s)

    def storage(self, board: Board, now_s: float) -> str:
        topics = () if board.seen is None else sorted(board.seen.topics, key=lambda t: t.size.bytes, reverse=True)
        more = {"topics": topics, "charts": charts(board.samples)[3:]}
        return self._page("storage.html", "/storage", "Storage and sweeps", board, now_s, **more)

    def health(self, board: Board, now_s: float) -> str:
        return self._page("health.html", "/health", "Health", board, now_s)

    def login(self, *, wrong: bool) -> str:
        return self._environment.get_template("login.html").render(wrong=wrong)


def drawn(topic: TopicSeen) -> Markup:
    """Return the picture of a topic's segments. `txnsegment.lineage` escapes all text in it."""
    return Markup(lineage.svg(topic.description))


def charts(samples: Sequence[Sample]) -> list[Markup]:
    """Return the charts of the cluster: rows and commits a second, commit latency, length of the log, bytes a second."""
    return [
        _chart(samples, "Rows a second", (("", lambda s: s.rows),), number),
        _chart(samples, "Commits a second", (("", lambda s: s.commits),), number),
        _chart(samples, "Commit latency", (("half", lambda s: s.p50_s), ("99 of 100", lambda s: s.p99_s)), duration),
        _chart(samples, "Length of the log", (("", lambda s: float(s.log_length)),), number),
        _chart(samples, "Bytes a second", (("", lambda s: s.bytes),), lambda value: size(round(value))),
    ]


def _chart(
    samples: Sequence[Sample],
    title: str,
    values: Sequence[tuple[str, Callable[[Sample], float | None]]],
    text: Callable[[float], str],
) -> Markup:
    lines = [Line(name, thinned([(s.at_ms, value(s)) for s in samples])) for name, value in values]
    return Markup(chart(title, lines, text))  # `chart` escapes all text in it
