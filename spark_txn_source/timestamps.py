"""Waits until the range of a read by publish time is final (protocol.md section 6, Timestamps)."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from metadata.common.errors import OffsetOutOfRange
from metadata.read.log_reader import LogReader
from metadata.read.reading import Reading
from metadata.records.cluster_records import Settings
from metadata.rules import timestamps
from metadata.rules.timestamps import OpenTransactions

POLL_SECONDS = 0.05


def patience_ms(settings: Settings) -> int:
    """Return how long a read by timestamp waits by default, in ms. After this time every transaction for which the read waits has
    ended, because it is past its deadline.
    """
    return settings.max_txn_timeout_ms + 3 * settings.deadline_allowance_ms


def final(log: LogReader, ms: int, timeout_ms: int | None) -> Reading:
    """Wait until the end of a read up to the timestamp `ms` is final. Return a reading of the log in which this end is final.

    The open transactions are read BEFORE the log. So the reading of the log has all rows of every transaction that had ended
    before the open transactions were read. Raises TopicNotFound. Raises OffsetOutOfRange if the end is not final within
    `timeout_ms` (None: `patience_ms`).
    """
    reading = log.now()
    if _ends(reading, ms, closed=False):
        return reading
    cluster = log.cluster
    until = cluster.clock.monotonic() + (patience_ms(cluster.settings) if timeout_ms is None else timeout_ms) / 1000
    while True:
        seen = log.open_transactions()
        reading = log.now()
        if _ends(reading, ms, closed=seen.closed(ms)):
            return reading
        left = until - cluster.clock.monotonic()
        if left <= 0 or seen.passes_in(ms) > left * 1000:
            raise _not_final(ms, seen, reading)
        cluster.clock.sleep(min(POLL_SECONDS, left))


def _ends(reading: Reading, ms: int, *, closed: bool) -> bool:
    """Return whether the end for a timestamp is final in a reading. `closed`: whether every registration that the log does not have
    yet will have a later publish time.
    """
    published = reading.published(0, reading.cut)
    return timestamps.end(published, ms, reading.cut, reading.above_cut(), closed=closed)[1]


def _not_final(ms: int, seen: OpenTransactions, reading: Reading) -> OffsetOutOfRange:
    what = _some([topic.name for topic in reading.topics]) or "the read"
    undecided = [one.number for one in reading.above_cut() if not one.visible and one.publish_ms <= ms]
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
        why = "the registrations above its cut changed with each attempt"
        advice = "Read again."
    return OffsetOutOfRange(
        f"The timestamp {ms} ({moment(ms)}) is not final for {what}: {why}.",
        advice=f"{advice} The option timestampTimeoutMs says how long a read waits.",
    )


def _some(found: Sequence[object]) -> str:
    return ", ".join(map(str, found[:3])) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def moment(ms: int) -> str:
    """Return a publish time as a text in UTC, or as a number of ms if it is too large for a date."""
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
