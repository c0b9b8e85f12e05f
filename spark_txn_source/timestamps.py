"""Reads whose range by publish time is final (protocol.md section 6, Timestamps): they wait for it, or raise an error."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from metadata.client.client import Client
from metadata.cluster.cluster import Cluster
from metadata.common.errors import OffsetOutOfRange
from metadata.read.reading import Reading
from metadata.records.cluster_records import Settings
from metadata.records.names import PersistentName
from metadata.rules import timestamps
from metadata.rules.timestamps import Above, OpenTransactions
from spark_txn_source.topics import reads_log

if TYPE_CHECKING:  # each of Spark's processes that plans a read would import it, too
    from metadata.instream.reading import TopicReading

POLL_SECONDS = 0.05
Read = TypeVar("Read")


def patience_ms(settings: Settings) -> int:
    """How long a read waits by default: every transaction that may hold it up is past its deadline by then, and aborted."""
    return settings.max_txn_timeout_ms + 3 * settings.deadline_allowance_ms


def _final(
    client: Client,
    ms: int,
    timeout_ms: int | None,
    read: Callable[[], Read],
    ends: Callable[[Read, bool], bool],
    opened: Callable[[], OpenTransactions],
    about: Callable[[Read], tuple[str, Iterator[Above]]],
) -> Read:
    """The first of the readings whose end by the timestamp `ms` is final.

    `ends(reading, closed)`: whether it is. `opened`: the transactions that may still register rows; it is called BEFORE the
    reading that it is said of. `about`: the name of what is read, and what lies above its cut. Raises OffsetOutOfRange.
    """
    reading = read()
    if ends(reading, False):
        return reading
    cluster = client.cluster
    until = cluster.clock.monotonic() + (patience_ms(cluster.settings) if timeout_ms is None else timeout_ms) / 1000
    while True:
        seen = opened()
        reading = read()
        if ends(reading, seen.closed(ms)):
            return reading
        left = until - cluster.clock.monotonic()
        if left <= 0 or seen.passes_in(ms) > left * 1000:
            raise _not_final(ms, cluster, seen, *about(reading))
        cluster.clock.sleep(min(POLL_SECONDS, left))


def _not_final(ms: int, cluster: Cluster, seen: OpenTransactions, what: str, above: Iterator[Above]) -> OffsetOutOfRange:
    undecided = [one.number for one in above if not one.visible and one.publish_ms <= ms]
    holding = [
        f"{t.txn_id} of {t.owner} (opened {moment(t.created_ms)}, times out {moment(t.deadline_ms)})" for t in seen.holding(ms)
    ]
    if passes_in := seen.passes_in(ms):
        why = f"the store's time is {moment(seen.now_ms)}, and rows of that publish time may come for another {passes_in} ms"
        advice = "Give an earlier timestamp, or read again later."
    elif undecided or holding:
        named = [f"registrations {_some(undecided)} are not decided"] if undecided else []
        named += [f"transactions {_some(holding)} are open"] if holding else []
        why = f"{' and '.join(named)}, so rows of that publish time may still become visible"
        advice = "Read again once they have ended: txnsegment txns list shows them, txnsegment txns abort ends one."
    else:
        why = "what was above its cut changed with each look"
        advice = "Read again."
    return OffsetOutOfRange(
        f"The timestamp {ms} ({moment(ms)}) is not final for {what}: {why}.",
        advice=f"{advice} The option timestampTimeoutMs says how long a read waits.",
    )


def _some(found: Sequence[object]) -> str:
    return ", ".join(map(str, found[:3])) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def moment(ms: int) -> str:
    """A publish time for people, in UTC. Beyond the years that have a date: the number."""
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def of_log(client: Client, ms: int, timeout_ms: int | None, read: Callable[[], Reading]) -> Reading:
    """The first reading of topic:// in which the end by this timestamp is final. Raises what `read` does."""

    def ends(reading: Reading, closed: bool) -> bool:
        if not reads_log(reading):
            return True
        published = reading.published(0, reading.cut)
        return timestamps.end(published, ms, reading.cut, reading.above_cut(), closed=closed)[1]

    def about(reading: Reading) -> tuple[str, Iterator[Above]]:
        return _some([topic.name for topic in reading.topics]) or "what is read", reading.above_cut()

    return _final(client, ms, timeout_ms, read, ends, client.buffer.open_transactions, about)


def of_topic(client: Client, name: PersistentName, ms: int, timeout_ms: int | None) -> TopicReading:
    """The same of a persistent topic. Raises TopicNotFound.

    A plain append has no transaction that announces it: it counts as soon as it is in the log, which is within the allowance.
    """

    def ends(reading: TopicReading, closed: bool) -> bool:
        return timestamps.end(reading.published(), ms, reading.cut, reading.above_cut(), closed=closed)[1]

    def about(reading: TopicReading) -> tuple[str, Iterator[Above]]:
        return reading.name, reading.above_cut()

    opened = client.instream.coordinator.ending.open_transactions
    return _final(client, ms, timeout_ms, partial(client.instream.buffer.read, name), ends, opened, about)
