"""Creates transactions that have written rows, and that their owner never ends. A migration or a reader may find them. This module
also sweeps until such transactions have ended (`wait_for_deadlines`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from conformance.scenarios.crashing import Crash, When
from conformance.scenarios.driver import crashing_client
from metadata.records import paths
from metadata.records.names import persistent_name
from metadata.records.records import Application, State
from metadata.store.contract import decide
from metadata.write.write_set import Committed
from txnsegment import Cluster, connect
from txnsegment.transaction import Transaction
from txnsegment.transactions import TransactionDescription

LATE_SECONDS = 60.0
"""A sweep must end each transaction within this time after its deadline, even on a busy machine."""
PAUSE_SECONDS = 0.05


class _LeftOpen(Transaction):
    """A transaction object whose `commit` only appends the rows to the logs. The marker-based transaction stays open."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        super().__init__(cluster.client, app=None, version=None, timeout_ms=timeout_ms)

    def commit(self) -> Committed:
        """Append the rows. Return a result as of a commit, with the id of the open transaction."""
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
    """Write one row in a marker-based transaction that stays open until its timeout. `timeout_ms` None: the cluster's timeout.
    Return the transaction's id.
    """
    with _LeftOpen(cluster, cluster.client.cluster.settings.txn_timeout_ms if timeout_ms is None else timeout_ms) as transaction:
        transaction.append(topic, pa.table({"key": [key], "id": [name]}))
        txn = transaction.commit().txn_id
    assert txn is not None
    return txn


def leave_behind(url: str, topic: str) -> None:
    """Leave an aborted and an open transaction in the topic. The open one stays until another process aborts it at its deadline."""
    with connect(url) as cluster:
        for abort in (True, False):
            txn = open_in(cluster, topic, "nobody", "nobody.0")
            if abort:
                cluster.client.instream.coordinator.end(txn, commit=False)


def die_registered(url: str, topics: Sequence[str]) -> None:
    """Open a transaction over these topic:// topics, append its registration, and kill this process right after that. So the
    transaction has no claims, op records or decision. Until its deadline, no reader can pass the registration. Other writers do not
    wait for it.
    """
    client, _ = crashing_client(url, Crash(1, When.AFTER, of=f"write Append {paths.LOG.path}"))
    with Transaction(client, app=None, version=None, timeout_ms=client.cluster.settings.txn_timeout_ms) as transaction:
        for topic in topics:
            transaction.append(topic, pa.table({"key": ["nobody"], "id": ["nobody.0"]}))
        transaction.commit()


def wait_for_deadlines(url: str, late_seconds: float = LATE_SECONDS) -> list[str]:
    """Sweep until every transaction that is OPEN at the time of this call has ended. Return what is wrong, in words: the
    transactions that `passed_over` returns, and those that stay OPEN too long. Too long is the sum of the cluster's timeout, its
    allowance and `late_seconds`, counted from this call.
    """
    with connect(url) as cluster:
        settings = cluster.client.cluster.settings
        until = time.monotonic() + (settings.txn_timeout_ms + settings.deadline_allowance_ms) / 1000 + late_seconds
        before = _open_ids(cluster)
        wrong = passed_over(cluster)
        while left := before & _open_ids(cluster):
            if time.monotonic() > until:
                return [*wrong, *(f"{txn} is still OPEN, {late_seconds:g} s beyond its deadline" for txn in sorted(left))]
            time.sleep(PAUSE_SECONDS)
            cluster.sweep()
        return wrong


def _open_ids(cluster: Cluster) -> set[str]:
    return {txn.id for txn in cluster.transactions.list(State.OPEN)}


def passed_over(cluster: Cluster) -> list[str]:
    """Return a text for each topic:// transaction that is OPEN and should have ended. That is so if its application has committed
    its version or a higher one, and also if the application has another current attempt. A new attempt has to end the previous
    attempt first (protocol.md section 5, step 2).

    A header and its application record are written together, but they are read one after the other. So the headers are read twice:
    before the application records and after them. Only transactions that are OPEN in both reads are returned.

    Transactions on persistent topics are not checked. There, two attempts may begin at the same time. If each reads the state
    before the other begins, none of them ends the other.
    """
    before = [txn for txn in cluster.transactions.list(State.OPEN) if txn.app is not None and isinstance(txn.state, State)]
    gone_on = {txn.id: app for txn in before if (app := _application(cluster, txn)) is not None and _gone_on(app, txn)}
    return [
        f"{txn.id}, version {txn.version} of {txn.app}, is OPEN, and its application has gone on: {gone_on[txn.id]}"
        for txn in cluster.transactions.list(State.OPEN)
        if txn.id in gone_on
    ]


def _application(cluster: Cluster, txn: TransactionDescription) -> Application | None:
    assert txn.app is not None
    key = paths.application(txn.app, txn.topic or "")
    record = decide(cluster.client.cluster.store, lambda view: view.get(key))
    return None if record is None else Application.of(record)


def _gone_on(app: Application, txn: TransactionDescription) -> bool:
    assert txn.version is not None
    return app.current is None or app.current.txn_id != txn.id or app.last_committed >= txn.version
