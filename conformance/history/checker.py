"""The history checker. It finds violations in a recorded history. It uses nothing but the events of the history.

The checker passes over the events twice. The first pass follows the decisions in order, and builds the `Truth`, the committed data.
The second pass compares the results of each reader with the `Truth`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from conformance.history import logs, successors
from conformance.history.acks import Acks
from conformance.history.deciding import Deciding
from conformance.history.deliveries import Deliveries
from conformance.history.findings import Finding, Findings
from conformance.history.format import (
    Abort,
    Ack,
    Application,
    Commit,
    Complaint,
    Counts,
    End,
    Entry,
    Event,
    Header,
    Horizon,
    Layout,
    Plan,
    Poll,
    Read,
    ReadFailed,
    Registration,
    Row,
    Seal,
    Start,
    Sweep,
    Told,
    Trim,
    Watermark,
)
from conformance.history.horizons import Horizons
from conformance.history.in_stream import InStream, TopicLog, by_markers
from conformance.history.layouts import Layouts
from conformance.history.migrations import Migrations
from conformance.history.ranges import Ranges
from conformance.history.reading import Reading, learn, versions_in_order
from conformance.history.streams import Streams
from conformance.history.truth import NEVER, Batch, Truth


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check. `findings`: the violations. `events`, `commits`, `reads`: how many of them there are."""

    findings: list[Finding]
    events: int
    commits: int
    reads: int
    store: bool
    """Whether the history contains changes of headers, registrations or marker-based logs. Otherwise only clients were recorded."""

    def __str__(self) -> str:
        what = "with the store's records" if self.store else "as clients saw it"
        return f"{self.events} events {what}, {self.commits} commits, {self.reads} reads: {len(self.findings)} findings"


def check(events: Iterable[Event]) -> list[Finding]:
    """Return all violations of a history."""
    return verdict(events).findings


def verdict(events: Iterable[Event]) -> Verdict:
    """Return all violations of a history, and how many events, commits and reads were judged."""
    history = sorted(events, key=attrgetter("at"))
    kinds = {type(event) for event in history}
    found = Findings()
    stored = not {Header, Registration, Entry}.isdisjoint(kinds)
    commits, reads = _by_the_store(history, found) if stored else _by_clients(history, found, acks=Ack in kinds)
    successors.left_undone(history, found)
    return Verdict(found, len(history), commits, reads, stored)


def _by_the_store(history: list[Event], found: Findings) -> tuple[int, int]:
    """Judge a history that contains store records. Return the number of commits and of reads."""
    topics = logs.persistent(history)
    if not topics:
        truth, reads = _judged(history, found, acks=True, stored=True)
        return len(truth.committed), reads
    in_stream = InStream(found)
    followed = logs.with_headers(history, in_stream)
    migrations = Migrations(history, in_stream, found)
    common = logs.common(migrations.common(followed))
    truth, reads = _judged(common, found, acks=True, stored=True, add_migrated=migrations.into)
    commits = len(truth.committed)
    for topic in sorted(topics):
        own, more = _by_its_log(logs.of_topic(history, topic), in_stream, topic, truth, found)
        commits, reads = commits + len(own.committed), reads + more
    return commits, reads


def _by_clients(history: list[Event], found: Findings, *, acks: bool) -> tuple[int, int]:
    """Judge a history that contains only requests, answers and reads of clients. Each log is judged separately. Then commits with
    rows in several logs are judged. Return the number of commits and of reads.
    """
    migrated = successors.pairs(history)
    rest = successors.without(history, migrated) if migrated else history
    persistent = sorted(logs.persistent(rest))
    parts = [(logs.common(rest) if persistent else rest, "")]
    parts += [(logs.of_topic(rest, topic), "") for topic in persistent]
    parts += [(successors.of_pair(history, pair, found), pair.new) for pair in migrated]
    truths = []
    reads = 0
    for part, successor in parts:
        truth, more = _judged(part, found, acks=acks, stored=False, unkeyed=frozenset({successor}))
        truths.append((truth, any(isinstance(event, Read) and event.final for event in part)))
        reads += more
    _whole_commits([truth for truth, ended in truths if ended], found)
    return sum(len(truth.committed) for truth, _ in truths), reads


def _whole_commits(truths: list[Truth], found: Findings) -> None:
    """Report a violation if a commit wrote to several logs, its rows are in one of them, and its rows are missing in another one.
    A commit whose client was told that it is committed is left out here: the check of the log that lacks its rows reports it.
    """
    seen: dict[str, list[Batch]] = defaultdict(list)
    for truth in truths:
        for batch in (batch for batches in truth.batches.values() for batch in batches if batch.rows):
            for call in batch.calls:
                seen[call.call].append(batch)
    for name, batches in seen.items():
        lacking = next((batch for batch in batches if batch.number is None and batch.told_at == NEVER), None)
        if lacking is not None and any(batch.number is not None for batch in batches):
            text = f"{lacking.label} ({name}) is in one topic and not in {lacking.place(lacking.rows[0])}"
            found.note("participant left out", text, *lacking.calls[-1:])


def _by_its_log(part: list[Event], in_stream: InStream, topic: str, common: Truth, found: Findings) -> tuple[Truth, int]:
    """Judge the reads of a persistent topic by the entries of its log. Return the log's committed data, and the number of reads."""
    own = in_stream.topics.get(topic, TopicLog(topic))
    for event in part:
        if isinstance(event, Trim):
            own.truth.trims.trim(event)
        elif isinstance(event, (Plan, Poll)):
            own.truth.trims.began(event)
    if own.sealed and own.ongoing:  # the ongoing transactions stall, so a final read lacks their rows
        part = [event._replace(final=False) if isinstance(event, Read) else event for event in part]
    txns = by_markers(part, common, in_stream.txns, found)
    acking = Truth(store=True, txns=txns, committed=own.truth.committed, trims=own.truth.trims)
    reads = _second_pass(part, own.truth, found, acks=True, acking=acking)
    for last in [e for e in part if isinstance(e, Read) and e.final][-1:]:
        in_stream.end(own, last.began)
    return own.truth, reads


def _judged(
    history: list[Event],
    found: Findings,
    *,
    acks: bool,
    stored: bool,
    add_migrated: Callable[[Truth], None] = lambda truth: None,
    unkeyed: frozenset[str] = frozenset(),
) -> tuple[Truth, int]:
    """Judge the events of one log. Return its committed data, and how many reads were judged by this data.

    `acks`: whether acknowledgements were recorded. `stored`: whether store records were recorded. `add_migrated`: a function that
    adds the commits of topics that were migrated into this log to the log's committed data. `unkeyed`: topics without a key.
    """
    spanning = any(event.spanning for event in history if isinstance(event, Start))
    truth = Truth(store=stored, spanning=spanning, unkeyed=unkeyed)
    _first_pass(history, truth, found)
    add_migrated(truth)
    if not stored:
        learn(truth, found, (e for e in history if isinstance(e, (Read, Poll))))
        versions_in_order(truth, found)
    return truth, _second_pass(history, truth, found, acks=acks)


def _first_pass(history: list[Event], truth: Truth, found: Findings) -> None:
    deciding, layouts = Deciding(truth, found), Layouts(truth, found)
    judges: dict[type, Callable[[Any], None]] = {
        Header: deciding.header,
        Registration: deciding.registration,
        Application: deciding.application,
        Seal: deciding.seal,
        Trim: truth.trims.trim,
        Plan: truth.trims.began,
        Poll: truth.trims.began,
        Sweep: deciding.sweep,
        Commit: deciding.commit,
        Abort: deciding.abort,
        End: deciding.end,
        Told: deciding.told,
        Layout: layouts.layout,
        Counts: lambda event: _bounded(event, found),
        ReadFailed: lambda event: _failed(event, found),
        Complaint: lambda event: found.note("complaint", event.what, event, invariant=event.invariant),
    }
    for event in history:
        judge = judges.get(type(event))
        if judge is not None:
            judge(event)


def _second_pass(history: list[Event], truth: Truth, found: Findings, *, acks: bool, acking: Truth | None = None) -> int:
    """Judge the results of readers. Return the number of reads. `acks`: whether acknowledgements were recorded. `acking`: the
    committed data by which acknowledgements are judged; None: `truth`.
    """
    ranges = Ranges(truth)
    reading, horizons = Reading(truth, ranges, found), Horizons(truth, ranges, found)
    streams, cursors = Streams(truth, ranges, reading, found), Acks(acking or truth, found)
    deliveries = Deliveries(truth, reading, cursors, found)
    reads, settled = 0, NEVER
    for event, new in _whole(history):
        kind = type(event)
        if kind is Read:
            assert isinstance(event, Read)
            reads += 1
            reading.read(event, new)
            if event.cut is not None:
                horizons.cut(event)
            if event.final:
                settled = event.began
        elif kind is Poll:
            assert isinstance(event, Poll)
            reads += 1
            if event.subscription is None or not acks:
                streams.poll(event)
            else:
                deliveries.poll(event)
        elif kind is Plan:
            assert isinstance(event, Plan)
            streams.plan(event)
            if event.cut is not None:
                horizons.cut(event)
        elif kind is Horizon:
            assert isinstance(event, Horizon)
            horizons.horizon(event)
        elif kind is Watermark:
            assert isinstance(event, Watermark)
            horizons.watermark(event)
        elif kind is Layout:
            assert isinstance(event, Layout)
            horizons.layout(event)
        elif kind is Ack:
            assert isinstance(event, Ack)
            cursors.ack(event)
    deliveries.end(settled)
    return reads


def _whole(history: list[Event]) -> Iterator[tuple[Event, tuple[Row, ...] | None]]:
    """Yield (event, None) for each event, with one exception. A read that was recorded with its new rows only (`Read.more`) gets
    back the rows of the reader's previous read; for it, yield (the completed read, its new rows).
    """
    before: dict[str, Read] = {}
    for event in history:
        new = None
        if isinstance(event, Read):
            if event.more and event.who in before:
                new = event.rows
                event = event._replace(rows=(*before[event.who].rows, *new), ordered=False)
            before[event.who] = event
        yield event, new


def _bounded(event: Counts, found: Findings) -> None:
    for kind, most in event.allowed.items():
        count = event.counts.get(kind, 0)
        if count > most:
            found.note("unbounded", f"{event.when}: {count} {kind} are left, expected at most {most}", event)


def _failed(event: ReadFailed, found: Findings) -> None:
    if not event.transient:
        found.note("read failed", f"{event.who}: {event.error}: {event.text}", event)
