"""The end of a transaction: a CAS of its header to a final state, counted by a metric (protocol.md sections 5 and 7).

Owners, later attempts, readers and sweepers all end transactions by `end`.
"""

from __future__ import annotations

from metadata.common import metrics
from metadata.common.errors import BadVersion, TxnConflict, UnknownOutcome
from metadata.records.records import Header, State
from metadata.rules import transitions
from metadata.store.contract import MetadataStore, Record


def end(store: MetadataStore, record: Record, decision: State, *, now_ms: int, commit: int | None = None) -> Header | None:
    """Try once to end the transaction whose header is `record`. Return the final header, also if the transaction had ended with the
    same outcome before. Return None after a lost race or a lost reply: the caller then reads the header again.

    `now_ms`: the store's time. `commit`: the number of the registration that COMMITTED names. The metric counts the call as `ok` if
    it ended the transaction, as `conflict` if the header must be read again, or as `reject` if the transaction had ended with the
    other outcome. Raises TxnConflict (`reject`), Unavailable (known to be not done).
    """
    before = Header.of(record)
    try:
        after = transitions.end(before, decision, now_ms=now_ms, commit=commit)
    except TxnConflict:
        metrics.HEADER_CAS.labels(result="reject").inc()
        raise
    if after is None:
        return before
    try:
        store.put(record.key, after.to_bytes(), expect=record, indexes=after.indexes())
    except (BadVersion, UnknownOutcome):
        metrics.HEADER_CAS.labels(result="conflict").inc()
        return None
    metrics.HEADER_CAS.labels(result="ok").inc()
    return after
