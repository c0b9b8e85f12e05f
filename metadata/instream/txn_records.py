"""What a transaction log holds: the coordinator's log of the older model (docs/in_stream.md, The transaction log)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from metadata.records.json_records import JsonRecord, Whole
from metadata.records.persistent_records import Identified, PersistentLayout


class TxnState(StrEnum):
    """Of a transaction: TransactionUtil's names in Pulsar 4."""

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
    """One append to a transaction log; it never changes.

    NEW begins a transaction, whose sequence number is the number of this entry: `created_ms` (store's time), `timeout_ms`, and who
    writes (`owner`, `app`, `version`, `by`, `attempt`, `random`: as in the header and application records of topic://). `topics`
    and `subscriptions` register participants, with NEW at once or by ADD; each subscription is a pair [topic, subscription].
    STATUS moves the transaction `txn` (its sequence number) to `state`, `at_ms` by the store's clock.
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
    """A transaction as its log tells it. `least`: its sequence number. `ended_ms`: when its last state was logged, once decided."""

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
    """What an application has committed last: `txn` did it. `at_ms`: when (a random application is forgotten with its
    transaction). `restored`: as in the record of an application.
    """

    version: Whole
    txn: Whole
    at_ms: Whole
    by: str | None = None
    random: bool | None = None
    restored: bool | None = None


class TxnLogSnapshot(JsonRecord):
    """The transaction log up to the entry `at`: what its compaction leaves of it. Transactions by sequence number, applications by
    the name of their record (`<encoded appId>:<encoded topic>`).
    """

    at: Whole
    txns: tuple[Txn, ...] = ()
    apps: dict[str, Written] = Field(default_factory=dict)


class TxnLogRecord(PersistentLayout):
    """The topic record of a transaction log. `txn_log`: what its last compaction left; what is too big for a record lies in the
    file `txn_log_path`, whose CRC-32 is `txn_log_crc` (None: made by a version that knew none), and the record keeps the number
    alone.
    """

    txn_log: TxnLogSnapshot | None = None
    txn_log_path: str | None = None
    txn_log_crc: Whole | None = None
