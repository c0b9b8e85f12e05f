"""The Prometheus series of drivers, from their reports. `txnsegment ui` and the sweeper serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from metadata.cluster.figures import BUCKETS
from txnsegment.look.drivers import DriverSeen

PREFIX = "txnsegment_driver"


class DriverCollector(Collector):
    """Turns drivers into series when they are collected. `drivers`: returns them, and the store's time in ms."""

    def __init__(self, drivers: Callable[[], tuple[Sequence[DriverSeen], int]]) -> None:
        self._drivers = drivers

    def collect(self) -> Iterator[Metric]:
        return driver_series(*self._drivers())


def driver_series(drivers: Sequence[DriverSeen], now_ms: int) -> Iterator[Metric]:
    """Yield the series of the drivers. The label `driver` is the name that headers give the owner of a transaction."""

    def gauge(name: str, text: str, value: Callable[[DriverSeen], float | None]) -> Metric:
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["driver"])
        for one in drivers:
            found = value(one)
            if found is not None:
                family.add_metric([one.name], found)
        return family

    def counter(name: str, text: str, value: Callable[[DriverSeen], int]) -> Metric:
        family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=["driver"])
        for one in drivers:
            family.add_metric([one.name], value(one))
        return family

    info = GaugeMetricFamily(
        f"{PREFIX}_info",
        "1 for each driver, with its program and the application of its last commit.",
        labels=["driver", "program", "application", "state"],
    )
    for one in drivers:
        info.add_metric([one.name, one.report.program, next(iter(one.report.applications), ""), one.state.value], 1)
    yield info
    yield gauge("report_age_seconds", "Time since the driver last reported.", lambda d: max(0, now_ms - d.report.at_ms) / 1000)
    yield gauge("open_transactions", "Open transactions that the driver owns.", lambda d: d.open)
    yield gauge("silent", "1 if the driver does not report although a transaction of it is open.", lambda d: d.state == "silent")
    yield gauge(
        "last_commit_age_seconds", "Time since the driver last committed.", lambda d: _age_s(d.report.last_commit_ms, now_ms)
    )
    yield gauge("lag_rows", "Rows that the driver's streams and consumers had not read when they last planned.", lambda d: d.lag)
    yield counter("commits", "Transactions that the driver has committed.", lambda d: d.report.commits)
    yield counter(
        "conflicts", "Commits that another attempt, a reader or an acknowledgement prevented.", lambda d: d.report.conflicts
    )
    yield counter("failures", "Commits that raised another error.", lambda d: d.report.failures)
    yield counter("retries", "Steps of commits that were done again after a lost reply or a split.", lambda d: d.report.retries)
    yield counter("rows", "Rows that the driver has committed.", lambda d: d.report.rows)
    yield counter("bytes", "Bytes that the driver has committed.", lambda d: d.report.bytes)
    yield counter("rows_read", "Rows that the driver's streams planned and its consumers read.", lambda d: d.report.rows_read)
    yield counter("unsent_reports", "Reports that the driver could not write.", lambda d: d.report.unsent)
    seconds = HistogramMetricFamily(f"{PREFIX}_commit_seconds", "Latency of the driver's commits.", labels=["driver"])
    for one in drivers:
        counts = one.report.buckets
        if len(counts) != len(BUCKETS) + 1:  # another version of txnsegment has other buckets
            counts = (*[0] * len(BUCKETS), one.report.commits)
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        below = list(zip(bounds, accumulate(counts), strict=True))
        seconds.add_metric([one.name], below, one.report.commit_us / 1_000_000)
    yield seconds


def _age_s(at_ms: int | None, now_ms: int) -> float | None:
    return None if at_ms is None else max(0, now_ms - at_ms) / 1000
