"""Snapshots of a transaction buffer: Pulsar's TransactionBufferSnapshot in Avro, with additional state for the rules.

A snapshot is taken at maxReadPosition. Everything at or below maxReadPosition is decided, so a reader finds the open transactions
by replaying the entries above it. A transaction may have entries at or below maxReadPosition and its marker above maxReadPosition.
The field `ongoing` of the additional state (`SnapshotRest`) has such transactions. The list of aborted transactions covers the log
up to its end, because a marker above maxReadPosition may decide rows below it.
"""

from __future__ import annotations

import base64
import io
import zlib
from functools import cache
from typing import Any

import fastavro

from ledgers.errors import MissingFile
from ledgers.storage import LedgerStorage
from metadata.common.errors import CorruptRecord, CorruptSnapshot
from metadata.instream.rules import TopicState, TxnId, txn_id
from metadata.records.folders import persistent_folder
from metadata.records.names import PersistentName
from metadata.records.persistent_records import SnapshotPointer, SnapshotRest, Started

INLINE_BYTES = 32 * 1024
"""If the Avro record, or the additional state, has more bytes than this, it is stored in a file of its own."""

SCHEMA = {
    "type": "record",
    "name": "TransactionBufferSnapshot",
    "namespace": "org.apache.pulsar.broker.transaction.buffer.matadata",
    "fields": [
        {"name": "topicName", "type": ["null", "string"], "default": None},
        {"name": "maxReadPositionLedgerId", "type": "long"},
        {"name": "maxReadPositionEntryId", "type": "long"},
        {
            "name": "aborts",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "AbortTxnMetadata",
                        "fields": [
                            {"name": "txnIdMostBits", "type": "long"},
                            {"name": "txnIdLeastBits", "type": "long"},
                            {"name": "ledgerId", "type": "long"},
                            {"name": "entryId", "type": "long"},
                        ],
                    },
                },
            ],
            "default": None,
        },
    ],
}
"""The fields of Pulsar's TransactionBufferSnapshot, in its order (apache/pulsar#9490). The misspelling `matadata` is Pulsar's."""


@cache
def _parsed() -> Any:
    return fastavro.parse_schema(SCHEMA)


def encode(name: PersistentName, max_read: tuple[int, int], aborted: dict[str, int]) -> bytes:
    """Encode the Avro record of a snapshot, without its schema. An abort marker is one entry, so its entryId is 0."""
    aborts = [
        {"txnIdMostBits": t.most, "txnIdLeastBits": t.least, "ledgerId": number, "entryId": 0}
        for t, number in sorted((txn_id(txn), number) for txn, number in aborted.items())
    ]
    out = io.BytesIO()
    fields = {
        "topicName": str(name),
        "maxReadPositionLedgerId": max_read[0],
        "maxReadPositionEntryId": max_read[1],
        "aborts": aborts,
    }
    fastavro.schemaless_writer(out, _parsed(), fields)
    return out.getvalue()


def decode(data: bytes) -> tuple[str, tuple[int, int], dict[str, int]]:
    """Decode the Avro record of a snapshot. Return the topic, maxReadPosition, and the aborted transactions, each with the number
    of the marker that aborted it. Raises ValueError.
    """
    try:
        found: Any = fastavro.schemaless_reader(io.BytesIO(data), _parsed(), None)
        aborts = found["aborts"] or ()
        aborted = {str(TxnId(a["txnIdMostBits"], a["txnIdLeastBits"])): int(a["ledgerId"]) for a in aborts}
        return str(found["topicName"]), (found["maxReadPositionLedgerId"], found["maxReadPositionEntryId"]), aborted
    except Exception as error:  # fastavro raises many kinds of errors for invalid bytes
        raise ValueError(f"{len(data)} bytes that are not an Avro record of a snapshot: {error}") from error


def pointer(
    storage: LedgerStorage,
    name: PersistentName,
    base: TopicState,
    aborted: dict[str, int],
    *,
    last_entry: int,
    now_ms: int,
    unique: str,
) -> SnapshotPointer:
    """Make a snapshot of the state at maxReadPosition (`base`). `aborted`: the transactions that markers up to the end of the log
    have aborted. `last_entry`: the last entry id of the ledger at maxReadPosition. Large content is published as files before this
    function returns. Raises StorageError.
    """
    rest = SnapshotRest(
        ongoing={txn: Started(first=first, ids=tuple(sorted(ids))) for txn, (first, ids) in base.ongoing.items()},
        ended=dict(base.ended),
        low_water={str(coordinator): least for coordinator, least in base.low_water.items()},
        void=tuple(sorted(base.void)),
        sealed_at=base.sealed_at,
    )
    data, more = encode(name, (base.at, last_entry), aborted), rest.to_bytes()
    made = SnapshotPointer(at=base.at, made_ms=now_ms, crc=zlib.crc32(data))
    if len(data) > INLINE_BYTES:
        path = f"{persistent_folder(name)}/index/{unique}.avro"
        storage.publish(path, data)
        made = made.model_copy(update={"path": path})
    else:
        made = made.model_copy(update={"avro": base64.b64encode(data).decode()})
    if len(more) > INLINE_BYTES:
        path = f"manifests/snapshot-{unique}.json"
        storage.publish(path, more)
        return made.model_copy(update={"rest_path": path, "rest_crc": zlib.crc32(more)})
    return made.model_copy(update={"rest": rest})


def load(storage: LedgerStorage, name: PersistentName, found: SnapshotPointer) -> tuple[TopicState, TopicState]:
    """Load a snapshot as (base, tip). `base`: the state at its maxReadPosition. `tip`: the same state, but with all aborted
    transactions of the snapshot, also those whose marker lies above maxReadPosition.

    Raises CorruptSnapshot (damaged, or a file is missing), StorageError.
    """
    try:
        return _load(storage, name, found)
    except (ValueError, MissingFile, CorruptRecord) as error:
        raise corrupt(name, found, str(error) if isinstance(error, ValueError) else error.message) from error


def corrupt(name: PersistentName, found: SnapshotPointer, what: str) -> CorruptSnapshot:
    return CorruptSnapshot(
        f"The transaction buffer snapshot of {name} at {found.at} is damaged: {what.rstrip('.')}.",
        advice=f"Restore {', '.join(found.files()) or 'the record of the topic'} from a copy: without it, and with the log below "
        "it trimmed, rows of aborted transactions cannot be filtered.",
    )


def _load(storage: LedgerStorage, name: PersistentName, found: SnapshotPointer) -> tuple[TopicState, TopicState]:
    if (found.avro is None) == (found.path is None) or (found.rest is None) == (found.rest_path is None):
        raise ValueError("a part of it is neither in the record nor in a file")
    data = storage.read(found.path) if found.path is not None else base64.b64decode(found.avro or "", validate=True)
    more = None if found.rest_path is None else storage.read(found.rest_path)
    for part, crc in ((data, found.crc), (more, found.rest_crc)):
        if part is not None and crc is not None and zlib.crc32(part) != crc:
            raise ValueError(f"its {len(part)} bytes have a different checksum")
    topic, position, aborted = decode(data)
    if topic != str(name) or position[0] != found.at:
        raise ValueError(f"it is a snapshot of {topic} at {position[0]}")
    rest = found.rest if more is None else SnapshotRest.from_bytes(more)
    assert rest is not None
    base = TopicState(
        at=found.at,
        ongoing={txn: (started.first, frozenset(started.ids)) for txn, started in rest.ongoing.items()},
        aborted={txn: number for txn, number in aborted.items() if number <= found.at},
        ended=dict(rest.ended),
        low_water={int(coordinator): least for coordinator, least in rest.low_water.items()},
        void=set(rest.void),
        sealed_at=rest.sealed_at,
    )
    tip = base.copy()
    tip.aborted = aborted
    return base, tip
