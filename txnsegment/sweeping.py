"""The sweeping daemon, `txnsegment sweep --every 10s`, with its metrics (protocol.md section 7)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from metadata.client.passes import sweep_pass
from metadata.common import metrics
from metadata.common.errors import ConfigurationError
from metadata.common.failures import contained
from metadata.maintenance.sweeper import SweepReport
from metadata.read import backlog
from metadata.read.backlog import Lag
from txnsegment.look.driver_series import DriverCollector
from txnsegment.look.drivers import DriverSeen
from txnsegment.look.reading import look_at_drivers

if TYPE_CHECKING:
    from txnsegment.cluster import Cluster

log = logging.getLogger("txnsegment.sweeping")

ORPHANS_EVERY = 3600.0
"""Seconds between two orphan sweeps. An orphan sweep lists all files, and deletes only files that are days old."""

AGAIN_AFTER = 600.0
"""Seconds until the next orphan sweep if a pass with an orphan sweep failed. An earlier retry would not help, because the usual
cause, a damaged record, lasts longer.
"""

PASSES = Counter("txnsegment_sweeps", "Passes of the sweeping daemon by outcome.", ["result"])


def sweep_until(
    stop: threading.Event,
    cluster: Cluster,
    every: float,
    *,
    told: Callable[[SweepReport], None],
    orphans_every: float = ORPHANS_EVERY,
    lags: bool = False,
    drivers: DriversSeen | None = None,
) -> None:
    """Sweep at once and then every `every` seconds until `stop` is set.

    The first pass also sweeps orphans. After that one pass every `orphans_every` seconds does so. If a pass with an orphan sweep
    fails, the next orphan sweep follows after at most ten minutes. The leader among the running sweepers splits and merges segments
    by policy. `told`: a function that is called with the report of each pass that succeeded. A failed pass is logged and counted,
    and the next pass repeats its work. No error ends the daemon. `lags`: measure the lag of each subscription after each pass, so
    that its metrics are current without a consumer. `drivers`: gets the drivers of the cluster after each pass.
    """
    clock = cluster.client.cluster.clock
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    next_orphans = clock.monotonic()
    measured: set[tuple[str, str]] = set()
    while not stop.is_set():
        if folder is not None:
            with contained("metrics", "the gauges of ended processes"):
                drop_gauges_of_the_dead(Path(folder))
        files = clock.monotonic() >= next_orphans
        report, failed = sweep_pass(cluster.client, files=files)
        if drivers is not None:
            with contained("drivers", "the reports of the drivers", level=logging.WARNING):
                drivers.look(cluster)
        if files:
            next_orphans = clock.monotonic() + (min(orphans_every, AGAIN_AFTER) if failed else orphans_every)
        if failed:
            PASSES.labels(result="error").inc()
            log.error("the sweep failed, the next one is in %s s: %s", every, ", ".join(failed))
        else:
            PASSES.labels(result="ok").inc()
            with contained("report", "the report of the sweep"):
                told(report)
        if lags:
            with contained("lags", "the lags of the subscriptions", level=logging.WARNING):
                measured = measure_lags(cluster, measured)
        stop.wait(every)
    cluster.client.autoscaler.leadership.resign()


def measure_lags(cluster: Cluster, before: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Set the lag metrics of every subscription. Returns the subscriptions as (topic, name). A deleted subscription of `before`
    gets a lag of zero.
    """
    now = {(found.topic, found.name) for found in cluster.subscriptions.list()}  # list() sets the metrics
    for topic, name in before - now:
        backlog.measure(topic, name, Lag(0, 0, 0.0))
    return now


def drop_gauges_of_the_dead(folder: Path) -> None:
    """Delete the gauge files of ended processes, because the values are no longer current. The counters and histograms of these
    processes stay, because they are part of the sums. All processes that share the folder must run on this machine, because this
    function checks whether the ids of the processes exist.
    """
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
        except PermissionError:
            continue  # the process is alive and belongs to another user


class DriversSeen:
    """The drivers of a cluster as the last look found them, as series for Prometheus."""

    def __init__(self) -> None:
        self._found: tuple[tuple[DriverSeen, ...], int] = ((), 0)
        self.collector = DriverCollector(lambda: self._found)

    def look(self, cluster: Cluster) -> None:
        """Look at the drivers. Without an answer there are none, because their figures would be old. Raises StoreError."""
        self._found = ((), 0)
        self._found = look_at_drivers(cluster.client)


@contextmanager
def metrics_served(host: str, port: int, drivers: DriversSeen | None = None) -> Iterator[int]:
    """Serve the metrics at http://host:port/metrics, and yield the port (`port` 0 takes a free one). `drivers`: their series are
    served, too.

    If PROMETHEUS_MULTIPROC_DIR is set, the metrics are those of all processes of this machine that share the folder. Raises
    ConfigurationError if the port cannot be used.
    """
    metrics.declare()  # so that metrics without a value are shown, too
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    registry = REGISTRY
    if folder is not None:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    served = CollectorRegistry()
    for one in (registry, *(() if drivers is None else (drivers.collector,))):
        served.register(one)
    try:
        server, thread = start_http_server(port, host, served)
    except OSError as error:
        raise ConfigurationError(
            f"The metrics cannot be served on {host}:{port}: {error.strerror}.", advice="Choose another --metrics-port or host."
        ) from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
