"""Prometheus metrics: those that PIP-473 defines, under the same names, and some that only txnsegment has. If the environment
variable PROMETHEUS_MULTIPROC_DIR names a folder, the processes of a machine share the metrics. Counters and histograms are added
up. A gauge has the value that a running process has set last.

The metrics are declared on first use, because their declaration creates files in that folder. Executor tasks import this module
without using a metric, and must not leave files in the folder.

A Python worker of Spark counts only in that folder: nobody can ask the worker itself for its metrics. Without the folder a worker
counts nothing, and does not import prometheus_client, which takes a tenth of the time of a query's first plan.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

from metadata.common.workers import RUNTIME

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

OP_WRITES: Counter
HEADER_CAS: Counter
INDEX_QUERY_SECONDS: Histogram
OUTSTANDING_OPS: Gauge
COMMIT_SECONDS: Histogram
ROWS_WRITTEN: Counter
BYTES_WRITTEN: Counter
ROWS_PLANNED: Counter
PARTS_SKIPPED: Counter
SUBSCRIPTION_LAG_ROWS: Gauge
SUBSCRIPTION_LAG_BYTES: Gauge
SUBSCRIPTION_LAG_SECONDS: Gauge
READ_LAG: Gauge
USING_TXN_TOPICS: Counter
SWEEP_FAILURES: Counter

_lock = threading.Lock()


class Uncounted:
    """Takes the place of each metric in a process whose metrics nobody can read. It drops all counts."""

    def labels(self, **_: str) -> Uncounted:
        return self

    def inc(self, amount: float = 1) -> None:
        return

    def set(self, value: float) -> None:
        return

    def observe(self, amount: float) -> None:
        return

    def time(self) -> AbstractContextManager[None]:
        return _NOTHING


_NOTHING = nullcontext()


def _nobody_reads() -> bool:
    variable, worker = RUNTIME
    own = "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_client" in sys.modules
    return os.environ.get(variable) == worker and not own


def __getattr__(name: str) -> Counter | Gauge | Histogram:
    if name not in __annotations__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _nobody_reads():
        return cast("Counter", Uncounted())
    declare()
    found: Counter | Gauge | Histogram = globals()[name]
    return found


def declare() -> None:
    """Declare all metrics, once per process."""
    with _lock:
        if "READ_LAG" not in globals():
            _declare()


def _declare() -> None:
    global OP_WRITES, HEADER_CAS, INDEX_QUERY_SECONDS, OUTSTANDING_OPS, COMMIT_SECONDS
    global ROWS_WRITTEN, BYTES_WRITTEN, ROWS_PLANNED, PARTS_SKIPPED, READ_LAG
    global SUBSCRIPTION_LAG_ROWS, SUBSCRIPTION_LAG_BYTES, SUBSCRIPTION_LAG_SECONDS, USING_TXN_TOPICS, SWEEP_FAILURES
    if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        Path(folder).mkdir(parents=True, exist_ok=True)  # prometheus_client checks the folder at import
    from prometheus_client import Counter, Gauge, Histogram

    OP_WRITES = Counter("pulsar_txn_metadata_store_op_writes", "Op records written (PIP-473).")
    HEADER_CAS = Counter("pulsar_txn_metadata_store_header_cas", "Header CAS attempts by outcome (PIP-473).", ["result"])
    INDEX_QUERY_SECONDS = Histogram("pulsar_txn_metadata_store_index_query_seconds", "Latency of index range scans (PIP-473).")
    OUTSTANDING_OPS = Gauge(
        "pulsar_txn_metadata_store_outstanding_op_records",
        "Op records that no sweep has collected yet (PIP-473).",
        multiprocess_mode="livemostrecent",
    )
    COMMIT_SECONDS = Histogram(
        "txnsegment_commit_seconds",
        "From the first read of a commit to its deciding CAS.",
        buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    )
    ROWS_WRITTEN = Counter("txnsegment_rows_written", "Rows of committed transactions.")
    BYTES_WRITTEN = Counter("txnsegment_bytes_written", "Bytes of committed parts.")
    ROWS_PLANNED = Counter("txnsegment_rows_planned", "Rows in the plans of batch reads and micro-batches.")
    PARTS_SKIPPED = Counter("txnsegment_parts_skipped", "Parts that reads with a filter left out by their statistics.")
    USING_TXN_TOPICS = Counter(
        "pulsar_broker_using_txn_topics_count", "Persistent topics that this process has made topics with transactional messages."
    )
    SWEEP_FAILURES = Counter(
        "txnsegment_sweep_failures", "Failed steps of sweeps and of the work after commits, by step.", ["step"]
    )
    by = ["topic", "subscription"]
    SUBSCRIPTION_LAG_ROWS = Gauge(
        "txnsegment_subscription_lag_rows",
        "Committed rows that the subscription has not acknowledged.",
        by,
        multiprocess_mode="livemostrecent",
    )
    SUBSCRIPTION_LAG_BYTES = Gauge(
        "txnsegment_subscription_lag_bytes",
        "Estimated file bytes of the unacknowledged rows.",
        by,
        multiprocess_mode="livemostrecent",
    )
    SUBSCRIPTION_LAG_SECONDS = Gauge(
        "txnsegment_subscription_lag_seconds",
        "Age of the oldest unacknowledged row.",
        by,
        multiprocess_mode="livemostrecent",
    )
    READ_LAG = Gauge(
        "txnsegment_max_read_position_lag",
        "Registrations between a segment's cut and the end of the log, by topic.",
        ["topic"],
        multiprocess_mode="livemostrecent",
    )
