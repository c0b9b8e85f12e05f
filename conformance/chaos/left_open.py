"""Transactions on persistent topics that have written, and that nobody ends: what a migration may find in its way."""

from __future__ import annotations

import pyarrow as pa

from metadata.names import persistent_name
from metadata.write_set import Committed
from txnsegment import Cluster, connect
from txnsegment.transaction import Transaction


class _LeftOpen(Transaction):
    """Appends like a transaction; `commit` writes what was appended, in a transaction of the older model that is left open."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        super().__init__(cluster.client, app=None, version=None, timeout_ms=timeout_ms)

    def commit(self) -> Committed:
        """Its `txn_id` is the one that is open."""
        if self._committed is None:
            parts = {persistent_name(name): found for name, found in self._parts().items()}
            coordinator = self._client.instream.coordinator
            txn = coordinator.begin(topics=list(parts), timeout_ms=self._timeout_ms)
            numbers = coordinator.append(txn, parts)
            found = [part for some in parts.values() for part in some]
            number = next(iter(numbers.values()))
            self._committed = Committed(txn, number, sum(p.rows for p in found), sum(p.bytes for p in found))
        return self._committed


def open_in(cluster: Cluster, topic: str, key: str, name: str, timeout_ms: int | None = None) -> str:
    """Write a row in a transaction that is open from then on, until its timeout (None: the cluster's): its id."""
    with _LeftOpen(cluster, cluster.client.cluster.settings.txn_timeout_ms if timeout_ms is None else timeout_ms) as transaction:
        transaction.append(topic, pa.table({"key": [key], "id": [name]}))
        txn = transaction.commit().txn_id
    assert txn is not None
    return txn


def leave_behind(url: str, topic: str) -> None:
    """A transaction that was aborted, and one whose owner is gone and that is open: its deadline ends it."""
    with connect(url) as cluster:
        for abort in (True, False):
            txn = open_in(cluster, topic, "nobody", "nobody.0")
            if abort:
                cluster.client.instream.coordinator.end(txn, commit=False)
