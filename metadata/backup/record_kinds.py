"""The record type of each key, and the search for unreadable records (protocol.md section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from metadata.common.errors import CorruptRecord
from metadata.instream.ack_records import AckEntry, SubscriptionRecord
from metadata.instream.transaction_log import TRANSACTION_LOG
from metadata.instream.txn_records import TxnEntry, TxnLogRecord
from metadata.records import paths
from metadata.records.cluster_records import ClusterRecord, Founding, Leader, Restoring, Turn
from metadata.records.driver_records import DriverReport
from metadata.records.json_records import JsonRecord
from metadata.records.paths import Key
from metadata.records.persistent_records import LogEntry, NamespaceModel, PersistentLayout
from metadata.records.records import (
    AbortedTxn,
    Application,
    Cursor,
    Event,
    Header,
    Layout,
    Op,
    Policies,
    Registration,
    TcSequence,
    TopicSchema,
    Watermark,
)
from metadata.rules.elapsed import SeenTime
from metadata.store.contract import View

AT_ONCE: Final = 256
"""Number of records read in one round trip."""


class Kind(NamedTuple):
    """A kind of records. `path`: the pattern of their paths. `record`: their type. `partition`: the group of the pattern whose text
    is the partition key; None if the partition key is empty.
    """

    path: re.Pattern[str]
    record: type[JsonRecord]
    partition: int | None = None


def _kind(path: str, record: type[JsonRecord], partition: int | None = None) -> Kind:
    return Kind(re.compile(path, re.DOTALL), record, partition)


_TXN_LOG: Final = re.escape(paths.encode(str(TRANSACTION_LOG)))
_N: Final = r"-[0-9]{20}"
KINDS: Final = (
    _kind("/cluster", ClusterRecord),
    _kind("/founding", Founding),
    _kind("/restoring", Restoring),
    _kind("/sweep/turn", Turn),
    _kind("/sweep/time", SeenTime),
    _kind("/topics/[^/]+/[^/]+/[^/]+", Layout),
    _kind("/namespaces/[^/]+/[^/]+", Policies),
    _kind(f"/(log)/log{_N}", Registration, 1),
    _kind("/schemas/([^/]+)/[0-9]{20}", TopicSchema, 1),
    _kind("/cursors/([^/]+)", Cursor, 1),
    _kind("/txn/app/([^/]+)", Application, 1),
    _kind("/txn/id/([^/]+)", Header, 1),
    _kind(f"/txn/op/([^/]+){_N}", Op, 1),
    _kind("/txn/tc-seq/[^/]+", TcSequence),
    _kind("/txn/tc/leader/[^/]+", Leader),
    _kind("/drivers/[^/]+", DriverReport),
    _kind(f"/txn/(?:segment|subscription)-events/([^/]+){_N}", Event, 1),
    _kind("/txn/segment-state/watermark/([^/]+)", Watermark, 1),
    _kind("/txn/segment-state/aborted/([^/:]+):[^/]+", AbortedTxn, 1),
    _kind(re.escape(paths.topic(TRANSACTION_LOG).path), TxnLogRecord),
    _kind("/persistent/topics/[^/]+/[^/]+/[^/]+", PersistentLayout),
    _kind("/persistent/namespaces/[^/]+/[^/]+", NamespaceModel),
    _kind(f"/persistent/logs/({_TXN_LOG})/log{_N}", TxnEntry, 1),
    _kind(f"/persistent/logs/([^/]+)/log{_N}", LogEntry, 1),
    _kind("/persistent/subscriptions/([^/]+)", SubscriptionRecord, 1),
    _kind(f"/persistent/acks/([^/]+)/[^/]+/log{_N}", AckEntry, 1),
)
"""All kinds. A path belongs to the first kind whose pattern matches it."""


def kind_of(path: str) -> tuple[type[JsonRecord], Key] | None:
    """Return the record type and the key (with its partition key) of a path; None if the path belongs to no kind."""
    for kind in KINDS:
        found = kind.path.fullmatch(path)
        if found is not None:
            return kind.record, Key(path, "" if kind.partition is None else found[kind.partition])
    return None


def damaged(view: View) -> Iterator[CorruptRecord | str]:
    """Yield an error for each unreadable record of a store, and the path of each record that belongs to no kind."""
    known: list[tuple[type[JsonRecord], Key]] = []
    for path in view.keys(paths.EVERYTHING):
        found = kind_of(path)
        if found is None:
            yield path
        else:
            known.append(found)
    for start in range(0, len(known), AT_ONCE):
        yield from _damaged(view, known[start : start + AT_ONCE])


def _damaged(view: View, some: Sequence[tuple[type[JsonRecord], Key]]) -> Iterator[CorruptRecord]:
    for (kind, _), record in zip(some, view.get_many([key for _, key in some]), strict=True):
        if record is not None:
            try:
                kind.of(record)
            except CorruptRecord as error:
                yield error
