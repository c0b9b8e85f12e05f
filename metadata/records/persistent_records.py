"""The records of the older model and their bytes: JSON as all our records are (docs/in_stream.md, Records)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from metadata.common.errors import CorruptRecord
from metadata.records.cluster_records import LostNumbers
from metadata.records.json_records import RECORD_ADVICE, JsonRecord, Whole
from metadata.records.records import Layout, Registration, SegmentInfo, SegmentWrite

CONTAINS_TXN = "__contains_txn_messages"
"""The system property that says whether a topic has ever got a transactional message. Users may read it, never set or remove it."""


class Model(StrEnum):
    """Where the state of transactions is."""

    METADATA = "metadata"
    IN_STREAM = "in-stream"


class NamespaceModel(JsonRecord):
    """What a namespace says: the model of persistent names that do not exist yet."""

    new_persistent: Model = Model.IN_STREAM


class Identified(JsonRecord):
    """An entry that can be told from all others by its id."""

    id: str


class EntryKind(StrEnum):
    """What an append to a topic's log is."""

    DATA = "DATA"
    COMMIT = "COMMIT"
    ABORT = "ABORT"
    SEAL = "SEAL"


class LogEntry(Identified):
    """One append to the log of a persistent topic; it never changes. Its number is the ledger id of its rows.

    `id` is unique to the append: after a lost reply it is looked for, and a second one of the same transaction and id is void.
    DATA: `txn` (absent: a plain message), `write` with its parts, or with totals alone and a `manifest` that lists them, as in a
    registration. COMMIT, ABORT (markers): `txn`, and `low_water`: of that coordinator every transaction up to this sequence number
    has ended everywhere. SEAL: `why` (`migrate|terminate|delete`) and for a migration `to`, the topic:// that goes on,
    and with how many `segments`.
    """

    kind: EntryKind
    publish_ms: Whole
    txn: str | None = None
    write: SegmentWrite | None = None
    manifest: str | None = None
    manifest_bytes: Whole | None = None
    manifest_crc: Whole | None = None
    low_water: Whole | None = None
    why: str | None = None
    to: str | None = None
    segments: Whole | None = None

    def registration(self, topic: str) -> Registration:
        """A DATA entry as the log of topic:// would register it, for what reads and writes manifests. Raises CorruptRecord."""
        if self.write is None:
            raise CorruptRecord(f"The entry {self.id!r:.100} of {topic} is DATA without a write.", advice=RECORD_ADVICE)
        return Registration(
            txn=self.txn,
            publish_ms=self.publish_ms,
            segments={topic: self.write},
            manifest=self.manifest,
            manifest_bytes=self.manifest_bytes,
            manifest_crc=self.manifest_crc,
        )


class Started(JsonRecord):
    """A transaction that has begun in a topic and not ended: the number of its first entry, and the ids of its entries so far."""

    first: Whole
    ids: tuple[str, ...] = ()


class SnapshotRest(JsonRecord):
    """What the rules need of a topic besides Pulsar's snapshot, as of the same maxReadPosition: see `rules.TopicState`."""

    ongoing: dict[str, Started] = Field(default_factory=dict)
    ended: dict[str, Whole] = Field(default_factory=dict)
    low_water: dict[str, Whole] = Field(default_factory=dict)
    void: tuple[Whole, ...] = ()
    sealed_at: Whole | None = None


class SnapshotPointer(JsonRecord):
    """The newest snapshot of a topic's transaction buffer, of maxReadPosition `at`. The Avro record (Pulsar's
    TransactionBufferSnapshot: topic, maxReadPosition, aborted transactions with positions) is `avro` (base64), or lies in the file
    `path` if it is large; the rest is `rest`, or lies in the file `rest_path`. `crc`, `rest_crc`: CRC-32 of the
    Avro record and of the rest's file (None: made by a version that knew none).
    """

    at: Whole
    made_ms: Whole
    avro: str | None = None
    path: str | None = None
    rest: SnapshotRest | None = None
    rest_path: str | None = None
    crc: Whole | None = None
    rest_crc: Whole | None = None

    def files(self) -> list[str]:
        """The files that it lies in."""
        return [path for path in (self.path, self.rest_path) if path is not None]


class Trimmed(JsonRecord):
    """Entries up to `to` were trimmed at `at_ms`; they leave the log, and their files may go, once the grace period is over."""

    to: Whole
    at_ms: Whole


class PersistentLayout(Layout):
    """The record of a persistent topic: what a topic:// has besides its segments (schema, properties, policies), and ours.

    `sealing`: a SEAL may be in the log; whoever appends one sets this first. `snapshot`: of the transaction buffer. `trimmed_log`:
    all entries up to this number are trimmed, `trimmed_ms` the latest publish time among them; `leaving`: those still in the log.
    `migrated_to`: the topic:// that goes on. `bare`: nothing was left of it but this record and its SEAL (`remains`).
    `lost`: by restores from backups, ascending.
    """

    epoch: Whole = 0
    next_segment_id: Whole = 0
    segments: dict[str, SegmentInfo] = Field(default_factory=dict)
    created_ms: Whole = 0
    deleted_ms: Whole | None = None
    sealing: bool | None = None
    snapshot: SnapshotPointer | None = None
    trimmed_log: Whole = 0
    leaving: tuple[Trimmed, ...] = ()
    migrated_to: str | None = None
    bare: bool | None = None
    lost: tuple[LostNumbers, ...] | None = None

    @property
    def contains_txn(self) -> bool | None:
        """What the system property says: None if it is absent (a topic of an older version), True also for what is no boolean."""
        text = self.properties.get(CONTAINS_TXN)
        return None if text is None else text.lower() != "false"
