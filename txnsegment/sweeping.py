"""The sweeper as a daemon: `txnsegment sweep --every 10s`, with its metrics (protocol.md section 7)."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, Counter, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from metadata import backlog, metrics
from metadata.backlog import Lag
from metadata.errors import ConfigurationError, TxnSegmentError
from metadata.orphans import sweep_orphans
from metadata.sweeper import SweepReport
from metadata.upkeep import upkeep
from txnsegment.cluster import Cluster

log = logging.getLogger("txnsegment.sweeping")

ORPHANS_EVERY = 3600.0
"""Seconds between two orphan sweeps: they list all files, and what they look for is days old."""

PASSES = Counter("txnsegment_sweeps", "Passes of the sweeping daemon by outcome.", ["result"])


def sweep_until(
    stop: threading.Event,
    cluster: Cluster,
    every: float,
    *,
    told: Callable[[SweepReport], None],
    orphans_every: float = ORPHANS_EVERY,
    lags: bool = False,
) -> None:
    """Sweep now and every so many seconds until `stop` is set; the files that nothing protects at the first pass and then every
    `orphans_every` seconds. Of all that sweep like this one leads: it splits and merges topics by their policies. `told` hears of
    each pass. A pass that fails is logged and counted, and the next one does its work.
    `lags`: after each pass measure how far each subscription lags behind, so that the metrics say it though nobody consumes.
    """
    clock = cluster.client.cluster.clock
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    next_orphans = clock.monotonic()
    measured: set[tuple[str, str]] = set()
    while not stop.is_set():
        if folder is not None:
            drop_gauges_of_the_dead(Path(folder))
        try:
            report = cluster.client.sweep()
            scaled = cluster.client.autoscaler.scale()
            report = dataclasses.replace(report, splits=scaled.splits, merges=scaled.merges)
            if clock.monotonic() >= next_orphans:
                upkeep(cluster.client)
                orphans = sweep_orphans(cluster.client.cluster)
                report = dataclasses.replace(report, orphans_deleted=orphans.files, orphan_bytes=orphans.bytes)
                next_orphans = clock.monotonic() + orphans_every
            PASSES.labels(result="ok").inc()
            told(report)
        except TxnSegmentError as error:
            PASSES.labels(result="error").inc()
            log.error("the sweep failed, the next one is in %s s: %s", every, error)
        if lags:
            try:
                measured = measure_lags(cluster, measured)
            except TxnSegmentError as error:
                log.warning("the lags of the subscriptions were not measured: %s", error)
        stop.wait(every)
    cluster.client.autoscaler.leadership.resign()


def measure_lags(cluster: Cluster, before: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Show the lag of every subscription as metrics; which those are, as (topic, name). Those of `before` that are deleted now have
    nothing to get.
    """
    now = {(found.topic, found.name) for found in cluster.subscriptions.list()}  # describing one measures it
    for topic, name in before - now:
        backlog.measure(topic, name, Lag(0, 0, 0.0))
    return now


def drop_gauges_of_the_dead(folder: Path) -> None:
    """Delete the gauges of processes that have ended: nothing of them is "now" any more. Their counters and histograms stay, since
    they count on in the sums. (All processes that share the folder run on this machine, and see each other's ids.)
    """
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
        except PermissionError:
            continue  # another user's, and alive


@contextmanager
def metrics_served(host: str, port: int) -> Iterator[int]:
    """Serve the metrics at http://host:port/metrics (port 0: a free one), and say on which port. With PROMETHEUS_MULTIPROC_DIR set
    they are those of all processes of this machine that share the folder. Raises ConfigurationError.
    """
    metrics.declare()  # so that those that nobody has used yet are shown, too
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    registry = REGISTRY
    if folder is not None:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    try:
        server, thread = start_http_server(port, host, registry)
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
