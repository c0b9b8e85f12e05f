"""Abort of transactions past their deadline (protocol.md section 8.10). Any number of processes may abort them at the same time."""

from __future__ import annotations

import logging

from metadata.cluster.cluster import Cluster
from metadata.common import metrics
from metadata.log import ending
from metadata.records import paths
from metadata.records.records import Header, State
from metadata.rules import transitions
from metadata.store.contract import View, decide, until

log = logging.getLogger("txnsegment.sweeper")


def end_expired(cluster: Cluster) -> int:
    """Abort transactions that are OPEN past their deadline plus the allowance, by the store's clock. Return how many transactions
    this call has aborted.
    """
    allowance = cluster.settings.deadline_allowance_ms
    aborted = 0

    def body(view: View) -> bool | None:
        nonlocal aborted
        done = True
        top = paths.pad20(max(0, view.now_ms() - allowance))
        with metrics.INDEX_QUERY_SECONDS.time():
            late = view.scan_index(paths.TXN_BY_DEADLINE, paths.pad20(0), top)
        for record in late:
            header = Header.of(record)
            if not transitions.expired(header, view.now_ms(), allowance):
                continue
            if ending.end(cluster.store, record, State.ABORTED, now_ms=view.now_ms()) is None:
                done = False  # another process ended the transaction, or the reply was lost and the transaction may be OPEN
                continue
            aborted += 1
            log.warning("timed out txn=%s app=%s version=%s", record.key.partition, header.app, header.version)
        return done or None

    until(lambda: decide(cluster.store, body))
    return aborted
