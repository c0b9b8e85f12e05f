"""The records of the marker-based model and their bytes: JSON like all other records (docs/in_stream.md, Records)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from metadata.common.errors import CorruptRecord
from metadata.records.cluster_records import LostNumbers
from metadata.records.json_records import RECORD_ADVICE, JsonRecord, Whole
from metadata.records.records import Layout, Registration, SegmentInfo, SegmentWrite

CONTAINS_TXN = "__contains_txn_messages"
"""The system property that says whether a topic has ever received a transactional message. Users can read it but not set or remove
it.
"""


class Model(StrEnum):
    """The transaction model of a topic: where the state of its transactions is kept."""

    METADATA = "metadata"
    IN_STREAM = "in-stream"


class NamespaceModel(JsonRecord):
    """A namespace's setting: the model of `persistent://` names that do not exist yet."""

    new_persistent: Model = Model.IN_STREAM


class Identified(JsonRecord):
    """An entry with a unique id."""

    id: str


class EntryKind(StrEnum):
    """The kind of an entry in a topic's log."""

    DATA = "DATA"
    COMMIT = "COMMIT"
    ABORT = "ABORT"
    SEAL = "SEAL"


class LogEntry(Identified):
    """One entry in the log of a persistent topic. It never changes. The number of the entry is the ledger id of its rows.

    `id` is unique to the append: after a lost reply the append looks for it, and a second entry with the same transaction and id is
    void. DATA: `txn` (None: a plain message), `write` with its parts, or with totals and a `manifest` that lists the parts, as in a
    registration. COMMIT, ABORT (markers): `txn`, and `low_water`: every transaction of its coordinator up to this sequence number
    has ended everywhere. SEAL: `why` (`migrate|terminate|delete`), and for a migration `to`, the successor topic://, with its
    number of `segments`.
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
        """Return a DATA entry in the form of a topic:// registration, for code that handles manifests. Raises CorruptRecord."""
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
    """A transaction that is open in a topic: the number of its first entry, and the ids of its entries so far."""

    first: Whole
    ids: tuple[str, ...] = ()


class SnapshotRest(JsonRecord):
    """The state of a topic that Pulsar's snapshot does not contain, at the same maxReadPosition: see `rules.TopicState`."""

    ongoing: dict[str, Started] = Field(default_factory=dict)
    ended: dict[str, Whole] = Field(default_factory=dict)
    low_water: dict[str, Whole] = Field(default_factory=dict)
    void: tuple[Whole, ...] = ()
    sealed_at: Whole | None = None


class SnapshotPointer(JsonRecord):
    """The newest snapshot of a topic's transaction buffer, at maxReadPosition `at`. `avro` (base64) is the Avro record (Pulsar's
    TransactionBufferSnapshot: topic, maxReadPosition, aborted transactions with positions); a large one is in the file `path`.
    `rest` is the remaining state; a large one is in the file `rest_path`. `crc`, `rest_crc`: CRC-32 of the Avro record and of the
    rest's file (None: written by an older version).
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
        """Return the paths of the snapshot's files."""
        return [path for path in (self.path, self.rest_path) if path is not None]


class Trimmed(JsonRecord):
    """Entries up to `to` were trimmed at `at_ms`. They leave the log, and their files may be deleted, after the grace period."""

    to: Whole
    at_ms: Whole


class PersistentLayout(Layout):
    """The record of a persistent topic: the fields of a topic:// except its segments (schema, properties, policies), and fields of
    this model.

    `sealing`: a SEAL may be in the log; it is set before a SEAL is appended. `snapshot`: of the transaction buffer. `trimmed_log`:
    all entries up to this number are trimmed; `trimmed_ms`: the latest publish time among them; `leaving`: trimmed entries that are
    still in the log. `migrated_to`: the successor topic://. `bare`: only this record and its SEAL are left (`remains`). `lost`:
    ranges that restores lost, ascending.
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
        """Return the value of the system property: None if it is absent (a topic of an older version), True also for text that is
        not a boolean.
        """
        text = self.properties.get(CONTAINS_TXN)
        return None if text is None else text.lower() != "false"
