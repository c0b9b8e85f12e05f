"""Rates and latencies, computed from two looks at a cluster. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from txnsegment.look.seen import Seen, Size, age_s, committed


@dataclass(frozen=True, slots=True)
class Sample:
    """The activity between two looks, for charts. `at_ms`: the store's time of the later look. The rates are for each second. A
    rate is None if it is not known, because there was no earlier look. `p50_s`, `p99_s`: how long committed
    transactions took from their opening to their decision, in seconds; None if none has committed.
    """

    at_ms: int
    rows: float | None
    bytes: float | None
    commits: float | None
    aborts: float | None
    p50_s: float | None
    p99_s: float | None
    open: int
    log_length: int
    rows_of: Mapping[str, float] = field(default_factory=dict)
    """Rows a second of each topic that got rows."""


def sample(before: Seen | None, now: Seen) -> Sample:
    """Return what happened between two looks. `before` None: nothing is known of the time before `now`."""
    times = sorted(age_s(t, now.now_ms) for t in now.ended if committed(t))
    seconds = 0.0 if before is None else (now.now_ms - before.now_ms) / 1000
    empty = Sample(now.now_ms, None, None, None, None, percentile(times, 50), percentile(times, 99), len(now.open), now.log.length)
    if before is None or seconds <= 0:
        return empty
    old = {topic.name: topic for topic in before.topics}
    is_whole = before.topic_count == len(before.topics)  # so a topic that was not there is new
    grown = {
        topic.name: _grown(old[topic.name].size if topic.name in old else Size(), topic.size)
        for topic in now.topics
        if topic.problem is None and (old[topic.name].problem is None if topic.name in old else is_whole)
    }
    return Sample(
        at_ms=now.now_ms,
        rows=sum(size.rows for size in grown.values()) / seconds,
        bytes=sum(size.bytes for size in grown.values()) / seconds,
        commits=len(times) / seconds,
        aborts=(len(now.ended) - len(times)) / seconds,
        p50_s=empty.p50_s,
        p99_s=empty.p99_s,
        open=empty.open,
        log_length=empty.log_length,
        rows_of={name: size.rows / seconds for name, size in grown.items() if size.rows},
    )


def _grown(before: Size, now: Size) -> Size:
    """Return by how much a topic has grown. Retention makes it smaller. Then the growth is not known, and counts as 0."""
    return Size(max(0, now.rows - before.rows), max(0, now.bytes - before.bytes), max(0, now.parts - before.parts))


def percentile(ascending: Sequence[float], percent: int) -> float | None:
    """Return the nearest-rank percentile of ascending values; None if there are none."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)] if ascending else None
