"""Divide a history into the parts of its logs: the common log of all topic:// topics, and the log of each persistent topic, which
has numbers of its own. The part of the common log keeps the events of all transactions and applications, and all answers to
clients.
"""

from __future__ import annotations

from collections.abc import Iterable

from conformance.history.format import (
    Ack,
    Commit,
    Entry,
    Event,
    Horizon,
    Plan,
    Poll,
    Read,
    Told,
    Trim,
    Written,
)
from conformance.history.in_stream import InStream

PERSISTENT = "persistent://"
SYSTEM = "persistent://pulsar/system/"
"""The prefix of the names of the coordinators' logs, which are no topics for readers."""

Seen = Read | Plan | Poll | Horizon
"""The events of readers."""


def persistent(history: Iterable[Event]) -> set[str]:
    """Return the persistent topics that the reads, commits and log entries of a history name."""
    found: set[str] = set()
    places: set[str] = set()
    for event in history:
        if isinstance(event, (Read, Plan, Poll, Horizon)):
            places.update(event.topics)
        elif isinstance(event, Commit):
            places.update([_place(row, event) for row in event.rows])
        elif isinstance(event, Entry) and not event.log.startswith(SYSTEM):
            found.add(event.log)
    found.update([place for place in places if place.startswith(PERSISTENT)])
    return found


def with_headers(history: Iterable[Event], in_stream: InStream) -> list[Event]:
    """Let `in_stream` follow the events. Return the events, with an added `Header` for each state change of a transaction."""
    found: list[Event] = []
    for event in history:
        found.append(event)
        if isinstance(event, Entry):
            found += in_stream.entry(event)
        elif isinstance(event, Trim):
            in_stream.trim(event)
        elif isinstance(event, Ack):
            in_stream.ack(event)
    return found


def common(history: Iterable[Event]) -> list[Event]:
    """Return the events of the common log. All log entries (`Entry`) are left out. Events of readers, acks and trims are left out
    if they concern only persistent topics. All other events are kept, without their rows of persistent topics. Readers' events are
    kept without the names of these topics, too.
    """
    found: list[Event] = []
    for event in history:
        if isinstance(event, (Read, Plan, Poll, Horizon)):
            if not event.log and (less := _less(event)) is not None:
                found.append(less)
        elif isinstance(event, Commit):
            found.append(event._replace(rows=tuple(row for row in event.rows if not _place(row, event).startswith(PERSISTENT))))
        elif isinstance(event, (Ack, Trim)):
            if not event.segment.startswith(PERSISTENT):
                found.append(event)
        elif not isinstance(event, Entry):
            found.append(event)
    return found


def _less(event: Seen) -> Seen | None:
    topics = tuple(topic for topic in event.topics if not topic.startswith(PERSISTENT))
    if topics == event.topics:
        return event
    if not topics:
        return None
    less = event._replace(topics=topics)
    if isinstance(less, (Read, Poll)):
        return less._replace(rows=tuple(row for row in less.rows if not row.segment.startswith(PERSISTENT)))
    return less


def of_topic(history: Iterable[Event], topic: str) -> list[Event]:
    """Return the events of one persistent topic, with the numbers of its log. A `Commit` keeps only its rows in this topic."""
    found: list[Event] = []
    calls: set[str] = set()
    for event in history:
        if isinstance(event, (Read, Plan, Poll, Horizon)):
            if topic in event.topics and event.log in ("", topic) and (one := _of(event, topic)) is not None:
                found.append(one)
        elif isinstance(event, Commit):
            rows = tuple(row for row in event.rows if _place(row, event) == topic)
            if rows:
                calls.add(event.call)
                found.append(event._replace(rows=rows))
        elif isinstance(event, Told):
            if event.call in calls:
                found.append(event._replace(number=None))
        elif isinstance(event, (Ack, Trim)) and event.segment == topic:
            found.append(event)
    return found


def _of(event: Seen, topic: str) -> Seen | None:
    """Return the part of a reader's event that concerns the topic; None for a plan or a horizon of the common log. The range and
    the cut of a read or poll are kept only if they are numbers of this topic's log (`log`); otherwise they become None.
    """
    if isinstance(event, (Read, Poll)):
        rows = tuple(row for row in event.rows if row.segment == topic)
        one = event._replace(topics=(topic,), rows=rows, segments=None)
        return one if event.log else one._replace(start=None, end=None, cut=None)
    return event._replace(topics=(topic,)) if event.log else None


def _place(row: Written, call: Commit) -> str:
    return row.segment or call.topic
