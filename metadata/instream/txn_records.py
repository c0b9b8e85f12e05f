"""The records of the transaction log, the coordinator's log of the marker-based model (docs/in_stream.md, The transaction log)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from metadata.records.json_records import JsonRecord, Whole
from metadata.records.persistent_records import Identified, PersistentLayout


class TxnState(StrEnum):
    """The state of a transaction, with the names of TransactionUtil in Pulsar 4."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"


class TxnEntryKind(StrEnum):
    NEW = "NEW"
    ADD = "ADD"
    STATUS = "STATUS"


class TxnEntry(Identified):
    """One entry of a transaction log; it never changes.

    NEW begins a transaction. Its sequence number is the number of this entry. The entry has `created_ms` (store's time),
    `timeout_ms`, and the writer: `owner`, `app`, `version`, `by`, `attempt`, `random`, as in the header and application records of
    topic://. NEW and ADD register the participants `topics` and `subscriptions`; each subscription is a pair [topic, subscription].
    STATUS changes the state of a transaction to `state`, at the time `at_ms` by the store's clock. ADD and STATUS have `txn`, the
    sequence number of their transaction.
    """

    kind: TxnEntryKind
    txn: Whole | None = None
    created_ms: Whole | None = None
    timeout_ms: Whole | None = None
    owner: str | None = None
    app: str | None = None
    version: Whole | None = None
    by: str | None = None
    attempt: str | None = None
    random: bool | None = None
    topics: tuple[str, ...] = ()
    subscriptions: tuple[tuple[str, str], ...] = ()
    state: TxnState | None = None
    at_ms: Whole | None = None


class Txn(JsonRecord):
    """A transaction as the transaction log shows it. `least`: its sequence number, the low part of its id. `ended_ms`: the time of
    its last change of state; None while it is OPEN.
    """

    least: Whole
    state: TxnState = TxnState.OPEN
    created_ms: Whole
    timeout_ms: Whole
    owner: str | None = None
    app: str | None = None
    version: Whole | None = None
    by: str | None = None
    attempt: str | None = None
    random: bool | None = None
    topics: tuple[str, ...] = ()
    subscriptions: tuple[tuple[str, str], ...] = ()
    ended_ms: Whole | None = None

    @property
    def deadline_ms(self) -> int:
        return self.created_ms + self.timeout_ms


class Written(JsonRecord):
    """The last committed version of an application. `txn`: the transaction that committed it. `at_ms`: the time of the commit.
    `random`: the application's id was generated for one write, so the record expires with the transaction. `restored`: as in an
    application record.
    """

    version: Whole
    txn: Whole
    at_ms: Whole
    by: str | None = None
    random: bool | None = None
    restored: bool | None = None


class TxnLogSnapshot(JsonRecord):
    """The state of a transaction log up to the entry `at`, stored by its compaction. `txns` is sorted by sequence number. The keys
    of `apps` are the names of application records (`<encoded appId>:<encoded topic>`).
    """

    at: Whole
    txns: tuple[Txn, ...] = ()
    apps: dict[str, Written] = Field(default_factory=dict)


class TxnLogRecord(PersistentLayout):
    """The topic record of a transaction log. `txn_log`: the state of its last compaction. If this state is too large for a record,
    it is in the file `txn_log_path`, and `txn_log` has only the number `at`. `txn_log_crc`: the CRC-32 of that file; None in
    records of older versions of txnsegment.
    """

    txn_log: TxnLogSnapshot | None = None
    txn_log_path: str | None = None
    txn_log_crc: Whole | None = None
