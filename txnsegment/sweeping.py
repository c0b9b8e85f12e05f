"""The sweeper as a daemon: `txnsegment sweep --every 10s`, with its metrics (protocol.md section 7)."""

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

if TYPE_CHECKING:
    from txnsegment.cluster import Cluster

log = logging.getLogger("txnsegment.sweeping")

ORPHANS_EVERY = 3600.0
"""Seconds between two orphan sweeps: they list all files, and what they look for is days old."""

AGAIN_AFTER = 600.0
"""Seconds until the next one if anything failed: what is damaged stays so for long, and each would list all files for it."""

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
    `orphans_every` seconds (after ten minutes if anything failed). Of all that sweep like this one leads: it splits and merges
    topics by their policies. `told` hears of each pass that did everything. One that did not is logged, with what failed, and
    counted, and the next one does its work: no error ends the sweeper.
    `lags`: after each pass measure how far each subscription lags behind, so that the metrics say it though nobody consumes.
    """
    clock = cluster.client.cluster.clock
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    next_orphans = clock.monotonic()
    measured: set[tuple[str, str]] = set()
    while not stop.is_set():
        if folder is not None:
            with contained("metrics", "the gauges of processes that have ended"):
                drop_gauges_of_the_dead(Path(folder))
        files = clock.monotonic() >= next_orphans
        report, failed = sweep_pass(cluster.client, files=files)
        if files:
            next_orphans = clock.monotonic() + (min(orphans_every, AGAIN_AFTER) if failed else orphans_every)
        if failed:
            PASSES.labels(result="error").inc()
            log.error("the sweep failed, the next one is in %s s: %s", every, ", ".join(failed))
        else:
            PASSES.labels(result="ok").inc()
            with contained("report", "saying what was swept"):
                told(report)
        if lags:
            with contained("lags", "the lags of the subscriptions", level=logging.WARNING):
                measured = measure_lags(cluster, measured)
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
