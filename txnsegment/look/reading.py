"""Looks at a cluster. A look reads the live log and its headers, the records and snapshot heads of a bounded number of topics, and
the transactions that are open or have ended since the look before. A look reads no rows and no whole index snapshot, and writes
nothing.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from metadata.client.client import Client, client
from metadata.client.transactions import TransactionDescription, recent
from metadata.cluster.cluster import open_cluster
from metadata.cluster.reports import read_reports
from metadata.common.clock import Clock
from metadata.common.errors import OptionError, SubscriptionNotFound, TopicNotFound, TxnSegmentError
from metadata.common.failures import STORE
from metadata.common.service import VARIABLE
from metadata.read import backlog
from metadata.read.backlog import Lag
from metadata.read.reading import LogSelection, Reading
from metadata.read.segment_view import SegmentView, StoredSegment
from metadata.records import paths
from metadata.records.cluster_records import Leader, Turn
from metadata.records.names import TopicName
from metadata.records.records import Cursor
from metadata.rules.acks import done
from metadata.rules.elapsed import SeenTime
from metadata.store.contract import View, decide
from metadata.store.read_only import ReadOnlyStore
from metadata.topics.topic import Topic, of_record
from pulsar_protocol.schemes import is_pulsar
from txnsegment.doctor import watch
from txnsegment.findings import Finding
from txnsegment.look.drivers import MOST_DRIVERS, DriverSeen, drivers
from txnsegment.look.seen import (
    LogSeen,
    PersistentSeen,
    Seen,
    SegmentSeen,
    Size,
    SubscriptionSeen,
    SweepsSeen,
    TopicSeen,
    horizon,
    with_problem,
)
from txnsegment.segments import undecided_of
from txnsegment.topics import segment_of

MOST_TOPICS = 200
"""How many topics a look reads: the first ones by name, and those that were asked for."""

MOST_SUBSCRIPTIONS = 200

MOST_REPORTS = 500
"""How many reports of drivers a look reads: the first ones by the name of the driver."""

MOST_LEDGERS = 2_000
"""How many unacknowledged ledgers of one segment are counted for a lag. A lag with more of them is a lower bound."""

FIRST_MS = 60_000
"""How far back the first look lists ended transactions. It is less than they are retained, because a busy cluster has many."""

OVERLAP_MS = 10_000
"""By how much the times of two looks for ended transactions overlap. A transaction takes its final time before the CAS that decides
it, so it can appear after transactions with later times.
"""


def open_to_look(service_url: str | None, *, clock: Clock | None = None) -> Client:
    """Open a cluster whose store refuses all writes. Raises OptionError for a Pulsar cluster, and as `open_cluster` does."""
    if is_pulsar(service_url if service_url is not None else os.environ.get(VARIABLE, "")):
        raise OptionError(
            "A Pulsar cluster cannot be looked at by `txnsegment ui` and `txnsegment top`: its state is in its brokers.",
            advice="`txnsegment topics list` and `topics describe` show its topics and segments, `subscriptions list` and "
            "`subscriptions describe` the positions of subscriptions, `txns list` the newest transactions of txnsegment's writers, "
            "and `doctor` what is wrong. Lags and rows a second are in the metrics of its brokers.",
        )
    cluster = open_cluster(service_url, clock=clock, create=False)
    return client(dataclasses.replace(cluster, store=ReadOnlyStore(cluster.store)), background=_no_work)


def _no_work(job: Callable[[], object]) -> None:
    raise AssertionError(f"a look commits nothing, so it leaves no work such as {job}")


class Looker:
    """Makes looks at one open cluster. Not safe for several threads."""

    def __init__(self, opened: Client) -> None:
        self.client = opened
        self._since_ms: int | None = None
        self._told: dict[str, int] = {}
        """The transactions within the overlap that earlier looks have returned as ended, with the time of their end."""
        self._reading: Reading | None = None

    def go_on(self, before: Looker) -> None:
        """Go on where another looker at the same cluster has stopped, so that no ended transaction is returned twice."""
        self._since_ms, self._told = before._since_ms, before._told

    def look(self, asked: Iterable[str] = ()) -> Seen:
        """Return what there is to see now. `asked`: names of topics that are read even if many others come before them. Raises
        StoreError.
        """
        cluster = self.client.cluster
        now_ms = decide(cluster.store, lambda view: view.now_ms())
        since_ms = now_ms - FIRST_MS if self._since_ms is None else max(self._since_ms - OVERLAP_MS, now_ms - FIRST_MS)
        found = recent(self.client, since_ms)
        ended = [t for t in found if not _is_open(t) and t.id not in self._told]
        names, count = decide(cluster.store, lambda view: _names(view, set(asked)))
        reading, broken = self._read(names)
        undecided = undecided_of(self.client, reading)
        numbers = decide(cluster.store, lambda view: view.keys(paths.LOG.range()))
        length, newest = len(numbers), int(numbers[-1][-20:]) if numbers else 0
        views: dict[TopicName, list[SegmentView]] = {t.name: [] for t in reading.topics}
        for view in reading.segments:
            views[view.topic.name].append(view)
        topics = [_topic(reading, t, views[t.name], undecided) for t in reading.topics] + broken
        reports, count_of_reports = decide(cluster.store, lambda view: read_reports(view, MOST_REPORTS))
        self._reading, self._since_ms = reading, now_ms
        self._told |= {t.id: t.finalized_ms or now_ms for t in ended}
        self._told = {txn: at_ms for txn, at_ms in self._told.items() if at_ms >= now_ms - OVERLAP_MS}
        open_now = tuple(sorted((t for t in found if _is_open(t)), key=lambda t: (t.created_ms, t.id)))
        return Seen(
            url=cluster.url,
            ledgers=cluster.storage.uri,
            now_ms=now_ms,
            log=LogSeen(length, max(newest, reading.end_of_log)),
            topics=tuple(sorted(topics, key=lambda t: t.name)),
            topic_count=count,
            persistent=tuple(
                PersistentSeen(str(t.name), t.layout.created_ms, bool(t.layout.sealing), t.layout.migrated_to)
                for t in islice(self.client.instream.topics.list(), MOST_TOPICS)
            ),
            open=open_now,
            ended=tuple(sorted(ended, key=lambda t: (t.finalized_ms or 0, t.id))),
            sweeps=decide(cluster.store, _sweeps),
            allowance_ms=cluster.settings.deadline_allowance_ms,
            drivers=drivers(reports, open_now, now_ms)[:MOST_DRIVERS],
            driver_count=count_of_reports,
        )

    def _read(self, names: Sequence[TopicName]) -> tuple[Reading, list[TopicSeen]]:
        """Return a reading of the topics, and the topics that cannot be read. A topic that is deleted meanwhile is left out."""
        selection = LogSelection(tuple(map(str, names)))
        try:
            return self.client.buffer.read(selection), []
        except STORE:
            raise
        except TxnSegmentError:  # one of the topics is gone or damaged: find out which
            sound, broken = [], []
            for name in names:
                try:
                    self.client.buffer.read(LogSelection((str(name),)))
                    sound.append(str(name))
                except TopicNotFound:
                    continue
                except STORE:
                    raise
                except TxnSegmentError as error:
                    broken.append(with_problem(str(name), f"{error.message} {error.advice}".strip()))
            return self.client.buffer.read(LogSelection(tuple(sound))), broken

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def subscriptions(self) -> tuple[SubscriptionSeen, ...]:
        """Return the subscriptions of the topics of the last look, with their lag behind the horizon. Raises StoreError."""
        reading = self._reading
        if reading is None:
            return ()
        there = {t.name for t in reading.topics}
        listed = [(topic, name) for topic, name in self.client.subscriptions.list() if topic in there]
        return tuple(self._subscription(reading, topic, name) for topic, name in listed[:MOST_SUBSCRIPTIONS])

    def _subscription(self, reading: Reading, topic: TopicName, name: str) -> SubscriptionSeen:
        segments = [s for s in reading.segments if s.topic.name == topic]
        try:
            cursors = self.client.coordinator.acks.read((s.name, name) for s in segments)
            lags = [_lag(reading, s, cursors[s.name, name]) for s in segments]
        except STORE:
            raise
        except SubscriptionNotFound:
            return SubscriptionSeen(str(topic), name, problem="It was deleted, or the topic was split, during the look.")
        except TxnSegmentError as error:
            return SubscriptionSeen(str(topic), name, problem=f"{error.message} {error.advice}".strip())
        return SubscriptionSeen(
            topic=str(topic),
            name=name,
            lag=backlog.total({s.name: lag for s, (lag, _) in zip(segments, lags, strict=True)}),
            at_least=any(more for _, more in lags),
            claims=len({txn for cursor in cursors.values() for txn in cursor.claims}),
        )

    def findings(self) -> tuple[Finding, ...]:
        """Return what `txnsegment doctor` says about the cluster, without its checks that write or read everything."""
        return tuple(watch(self.client.cluster))

    def close(self) -> None:
        self.client.close()


def look_at_drivers(client: Client) -> tuple[tuple[DriverSeen, ...], int]:
    """Return the drivers of a cluster, and the time of its store in ms. Raises StoreError."""
    reports, _ = decide(client.cluster.store, lambda view: read_reports(view, MOST_REPORTS))
    now_ms = decide(client.cluster.store, lambda view: view.now_ms())
    open_now = [txn for txn in recent(client, now_ms) if _is_open(txn)]
    return drivers(reports, open_now, now_ms)[:MOST_DRIVERS], now_ms


def _is_open(txn: TransactionDescription) -> bool:
    return txn.finalized_ms is None or txn.state in ("OPEN", "COMMITTING", "ABORTING")


def _names(view: View, asked: set[str]) -> tuple[list[TopicName], int]:
    """Return the topics to read, and how many topics there are (without deleted ones as far as they are read)."""
    found = sorted(map(paths.topic_at, view.keys(paths.TOPICS)))
    first, rest = found[:MOST_TOPICS], found[MOST_TOPICS:]
    names = [*first, *(name for name in rest if str(name) in asked)]
    records = dict(zip(names, view.get_many([paths.topic(n) for n in names]), strict=True)) if names else {}
    there = [name for name in names if of_record(name, records[name]) is not None]
    return there, len(found) - len(names) + len(there)


def _sweeps(view: View) -> SweepsSeen:
    seen, turn, leader = view.get_many([paths.SWEEP_TIME, paths.SWEEP_TURN, paths.leader()])
    looked = None if seen is None else SeenTime.of(seen).store_ms
    last = None if turn is None else Turn.of(turn)
    leads = None if leader is None else Leader.of(leader)
    return SweepsSeen(
        last_ms=max((ms for ms in (looked, last.began_ms if last is not None else None) if ms is not None), default=None),
        sweeper=None if leads is None else leads.owner,
        since_ms=None if leads is None else leads.since_ms,
        committer=None if last is None else last.by,
        began_ms=None if last is None else last.began_ms,
        orphans_ms=None if last is None else last.orphans_ms,
    )


def _topic(
    reading: Reading, topic: Topic, views: Sequence[SegmentView], undecided: Sequence[tuple[int, str, Iterable[str]]]
) -> TopicSeen:
    name = str(topic.name)
    cut, found = horizon(name, {s.name: s.sealed_at for s in views}, undecided, reading.end_of_log)
    return TopicSeen(
        name=name,
        key=topic.layout.key,
        epoch=topic.layout.epoch,
        segments=tuple(SegmentSeen(segment_of(topic, s.info), _size(s), len(s.live), s.sealed_at) for s in views),
        horizon=cut,
        behind=max(0, reading.end_of_log - cut),
        waiting=sum((_live(s, above=cut) for s in views), Size()),
        undecided=found,
    )


def _size(segment: SegmentView) -> Size:
    """Return the size of all committed rows of a segment. The head of its index snapshot has the totals of the folded ones."""
    if not isinstance(segment, StoredSegment):  # a migrated persistent topic, whose log does not grow
        return sum((Size(w.rows, w.bytes, 0) for w in segment.weights(0, segment.sealed_at or 0)), Size())
    head = segment.head
    if head is None:
        return _live(segment)
    parts = sum(file.parts for file in head.files) + sum(len(ledger.parts) for ledger in head.tail)
    return Size(head.rows, head.bytes, parts) + _live(segment)


def _live(segment: SegmentView, above: int = 0) -> Size:
    writes = [r.segments[segment.name] for number, r in segment.live if number > above]
    return Size(sum(w.rows for w in writes), sum(w.bytes for w in writes), sum(len(w.parts) for w in writes))


def _lag(reading: Reading, segment: SegmentView, cursor: Cursor) -> tuple[Lag, bool]:
    """Return the lag in a segment, of at most MOST_LEDGERS ledgers, and whether there are more."""
    ledgers = list(islice(backlog.pending(segment, done(cursor), 0, reading.cut), MOST_LEDGERS + 1))
    return backlog.lag_of(ledgers[:MOST_LEDGERS], reading.now_ms), len(ledgers) > MOST_LEDGERS
