"""The Prometheus series of a cluster as a look finds it: what the cluster's records say. The series that processes count about
their own work are in `metadata.common.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from txnsegment.findings import Health
from txnsegment.look.driver_series import driver_series
from txnsegment.look.seen import Seen, SubscriptionSeen
from txnsegment.look.watcher import Board

PREFIX = "txnsegment_cluster"
HEALTH = {Health.OK: 0, Health.WARN: 1, Health.FAIL: 2}


class BoardCollector(Collector):
    """Turns the board into series when they are collected. Without a look there are only `_up` and `_look_age_seconds`."""

    def __init__(self, board: Callable[[], Board], now_s: Callable[[], float]) -> None:
        self._board, self._now_s = board, now_s

    def collect(self) -> Iterator[Metric]:
        board, now_s = self._board(), self._now_s()
        is_up = board.seen is not None and board.trouble is None and not board.is_late(now_s)
        yield _gauge("up", "1 if the last look at the cluster succeeded and is not late, else 0.", float(is_up))
        if board.seen is None:
            return
        yield _gauge("look_age_seconds", "Time since the last look that succeeded.", max(0.0, now_s - board.at_s))
        yield _gauge("look_seconds", "How long the last look took.", board.took_s)
        yield from _whole(board.seen)
        ended = CounterMetricFamily(
            f"{PREFIX}_transactions_ended",
            "Transactions that have ended since this program began to look, by outcome.",
            labels=["state"],
        )
        ended.add_metric(["COMMITTED"], board.committed)
        ended.add_metric(["ABORTED"], board.aborted)
        yield ended
        yield from _by_topic(board.seen)
        yield from driver_series(board.seen.drivers, board.seen.now_ms)
        yield from _by_subscription(board.subscriptions or ())
        health = GaugeMetricFamily(f"{PREFIX}_health", "What doctor says, by check: 0 ok, 1 warning, 2 failure.", labels=["check"])
        for finding in board.findings:
            health.add_metric([finding.check], HEALTH[finding.health])
        yield health


def exposition(board: Callable[[], Board], now_s: Callable[[], float]) -> bytes:
    """Return the series in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BoardCollector(board, now_s))
    return generate_latest(registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _whole(seen: Seen) -> Iterator[Metric]:
    yield _gauge("open_transactions", "Transactions that are open.", len(seen.open))
    yield _gauge(
        "overdue_transactions", "Open transactions past their deadline, which no process has aborted yet.", len(seen.overdue)
    )
    yield _gauge("oldest_open_transaction_seconds", "Age of the oldest open transaction; 0 without one.", seen.oldest_open_s)
    yield _gauge("log_length", "Registrations and seals in the live log, which are not folded yet.", seen.log.length)
    yield _gauge("log_newest_number", "The newest number of the log.", seen.log.newest)
    yield _gauge("drivers", "Reports of drivers; a driver has one for each of its clients.", seen.driver_count)
    yield _gauge("topics", "Topics, without marker-based ones.", seen.topic_count)
    if seen.sweeps.last_ms is not None:
        since = max(0, seen.now_ms - seen.sweeps.last_ms) / 1000
        yield _gauge("last_sweep_age_seconds", "Time since a process last began to sweep, to a minute.", since)
    yield _gauge("sweepers", "1 if a sweeper leads, 0 if only committers sweep.", float(seen.sweeps.sweeper is not None))


def _by_topic(seen: Seen) -> Iterator[Metric]:
    def family(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{PREFIX}_topic_{name}", text, labels=["topic"])

    rows, size = family("rows", "Committed rows."), family("bytes", "Bytes of the committed rows, as written.")
    parts = family("parts", "Parts (files as written) of the committed rows.")
    segments = family("active_segments", "Active segments.")
    undecided = family("undecided", "Registrations of undecided transactions, which hold readers back.")
    behind = family("horizon_lag", "Log numbers between the read horizon and the end of the log.")
    waiting = family("waiting_rows", "Committed rows above the read horizon.")
    unreadable = family("unreadable", "1 if the topic's metadata cannot be read, else 0.")
    for topic in seen.topics:
        unreadable.add_metric([topic.name], float(topic.problem is not None))
        if topic.problem is None:
            whole = topic.size
            rows.add_metric([topic.name], whole.rows)
            size.add_metric([topic.name], whole.bytes)
            parts.add_metric([topic.name], whole.parts)
            segments.add_metric([topic.name], topic.active)
            undecided.add_metric([topic.name], len(topic.undecided))
            behind.add_metric([topic.name], topic.behind)
            waiting.add_metric([topic.name], topic.waiting.rows)
    yield from (rows, size, parts, segments, undecided, behind, waiting, unreadable)


def _by_subscription(found: tuple[SubscriptionSeen, ...]) -> Iterator[Metric]:
    """The names are those that consumers, streams and sweepers use for the lag that they measure themselves."""
    by = ["topic", "subscription"]
    rows = GaugeMetricFamily(
        "txnsegment_subscription_lag_rows", "Committed rows that the subscription has not acknowledged.", labels=by
    )
    size = GaugeMetricFamily("txnsegment_subscription_lag_bytes", "Estimated file bytes of the unacknowledged rows.", labels=by)
    age = GaugeMetricFamily("txnsegment_subscription_lag_seconds", "Age of the oldest unacknowledged row.", labels=by)
    for one in found:
        if one.problem is None:
            labels = [one.topic, one.name]
            rows.add_metric(labels, one.lag.rows)
            size.add_metric(labels, one.lag.bytes)
            age.add_metric(labels, one.lag.seconds)
    yield from (rows, size, age)
