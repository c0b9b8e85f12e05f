"""The outcome of a transaction whose header is gone (protocol.md section 5, Unknown outcome)."""

from __future__ import annotations

from metadata.cluster.cluster import Cluster
from metadata.common.errors import OutcomeUnknown, TxnConflict
from metadata.records import paths
from metadata.records.records import Application, Header, State
from metadata.store.contract import decide
from metadata.write.opening import Opened
from metadata.write.write_set import WriteSet


def gone(cluster: Cluster, opened: Opened, work: WriteSet) -> Header:
    """Return the COMMITTED header of a transaction whose header has expired before its owner could read the outcome. Only the
    application record can still show the outcome.

    Raises TxnConflict if the transaction was aborted, OutcomeUnknown if the application record does not show the outcome.
    """
    record = decide(cluster.store, lambda view: view.get(paths.application(work.app, work.app_topic)))
    app = None if record is None else Application.of(record)
    if app is not None and app.current is not None and app.current.txn_id == opened.txn_id:
        if app.last_committed >= work.claim.version:
            return opened.header.model_copy(update={"state": State.COMMITTED})
        raise TxnConflict(f"Transaction {opened.txn_id} was aborted, and its header has expired.", advice="Run the write again.")
    raise OutcomeUnknown(
        f"Transaction {opened.txn_id} was decided, but how can no longer be told: its header is forgotten.",
        advice=f"Nothing was deleted. Run version {work.claim.version} of {work.app} again: it is skipped if it committed.",
    )
