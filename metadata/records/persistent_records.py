"""The records of the marker-based model (docs/in_stream.md, Records). They are JSON, like all other records."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from metadata.common.errors import CorruptRecord
from metadata.records.cluster_records import LostNumbers
from metadata.records.json_records import RECORD_ADVICE, JsonRecord, Whole
from metadata.records.records import Layout, Registration, SegmentInfo, SegmentWrite

CONTAINS_TXN = "__contains_txn_messages"
"""The topic property that says whether a topic has ever received a row of a transaction. Users can read it but not change it."""


class Model(StrEnum):
    """The transaction model of a topic: where the state of its transactions is kept."""

    METADATA = "metadata"
    IN_STREAM = "in-stream"


class NamespaceModel(JsonRecord):
    """The setting of a namespace for new topics. `new_persistent`: the transaction model of a new topic whose name is
    `persistent://..`.
    """

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

    `id` is unique to the append. After a lost reply the writer looks for an entry with this id. A second entry with the same
    transaction and id is void.

    The other fields depend on the kind. DATA has `txn` (None: rows without a transaction) and `write`. `write` has the parts. As in
    a registration, if the parts do not fit into the record, `write` has only the totals, and the file `manifest` lists the parts.
    COMMIT and ABORT are markers. They have `txn`, and the low-water mark `low_water`: every transaction of the same coordinator up
    to this sequence number has ended at every participant. SEAL has `why` (`migrate|terminate|delete`). The SEAL of a migration
    also has two more fields. `to`: the name of the successor. `segments`: how many active segments the successor gets.
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
        """Return a DATA entry as a registration, for the code that handles manifests. Raises CorruptRecord without a `write`."""
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
    """A transaction that is open in a topic. `first`: the number of its first entry. `ids`: the ids of its entries so far."""

    first: Whole
    ids: tuple[str, ...] = ()


class SnapshotRest(JsonRecord):
    """The part of a topic's state for which Pulsar's snapshot has no fields. Both have the same maxReadPosition. `TopicState` in
    `metadata.instream.rules` explains the fields.
    """

    ongoing: dict[str, Started] = Field(default_factory=dict)
    ended: dict[str, Whole] = Field(default_factory=dict)
    low_water: dict[str, Whole] = Field(default_factory=dict)
    void: tuple[Whole, ...] = ()
    sealed_at: Whole | None = None


class SnapshotPointer(JsonRecord):
    """The newest snapshot of a topic's transaction buffer, at maxReadPosition `at`. `avro`: Pulsar's Avro record
    TransactionBufferSnapshot in base64. It has the topic, the maxReadPosition and the aborted transactions with their positions.
    `rest`: the remaining state. A large Avro record is in the file `path`, and a large rest in the file `rest_path`. `crc`,
    `rest_crc`: the CRC-32 of the Avro record and of the file of the rest (None: an older version of txnsegment wrote the snapshot).
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
    """One trim of a topic's log. The entries up to the number `to` were trimmed at `at_ms`. After the grace period they are deleted
    from the log, and their files may be deleted.
    """

    to: Whole
    at_ms: Whole


class PersistentLayout(Layout):
    """The record of a persistent topic. It uses the schema, the properties and the policies of a `topic://` record, but not the
    segments. It adds the fields of the marker-based model.

    `sealing`: the log may have a SEAL, because this field is set before a SEAL is appended. `snapshot`: the newest snapshot of the
    transaction buffer. `trimmed_log`: the number up to which all entries are trimmed. `trimmed_ms`: the latest publish time of a
    trimmed entry. `leaving`: the trims whose entries are still in the log. `migrated_to`: the successor. `bare`: the topic has no
    records except this one and its SEAL (`metadata.instream.remains`). `lost`: the ranges of numbers that a restore lost,
    ascending.
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
        """Return the value of the property CONTAINS_TXN. It is None if an older version of txnsegment created the topic without the
        property. A text that is not a boolean counts as True.
        """
        text = self.properties.get(CONTAINS_TXN)
        return None if text is None else text.lower() != "false"
