"""Names for the calls of store and storage, by which a script says where a process crashes, sleeps or loses a reply.

| word | the call |
|---|---|
| ids | the next block of transaction ids |
| application | the application record: read, or written |
| open | the new header, with the application record in one group |
| register | the append to the log (a seal is one, too) |
| list, bodies | the log: its numbers are listed; its entries are read |
| headers | headers are read |
| layouts, layout | topic records: read; written |
| watermarks, watermark | watermark records: read; written |
| ops | op records are listed or read |
| record | op records are written |
| decide | a header is ended by CAS, COMMITTED or ABORTED |
| tell | events |
| settle | a registration is marked COMMITTED or VOID |
| unrecord | op records are deleted |
| drop | registrations are deleted |
| forget | a header is deleted |
| raise | the application record is written alone |
| clean | events and aborted records are deleted |
| index | an index is scanned |
| cursors, cursor | cursors with their claims: read or listed; written (claimed, acknowledged, settled, moved) |
| said, say | the policies of a namespace: read; written |
| turns, turn | the turn to sweep: read; taken |
| schema | a schema is read or written |
| pause | a wait |
| txn-entries, log-txn | the log of a coordinator: listed or read; appended to |
| entries, append | the log of a persistent topic: listed or read; appended to (data, markers, a seal) |
| ack-entries, append-ack | a pending-ack log: listed or read; appended to |
| records, change | records of persistent topics: read; written (property, snapshot, trimmed position) |
| subscriptions, subscription | records of their subscriptions: read; written |
| leave | entries of these logs are deleted |
| skip | the log skips numbers |
| publish, read, files, unlink | a file is written, read, listed, deleted |
"""

from __future__ import annotations

from metadata.records.paths import Key
from metadata.store.memory import MemoryState

_READS = (
    ("/txn/id/", "headers"),
    ("/txn/tc-seq/", "ids"),
    ("/txn/app/", "application"),
    ("/txn/op/", "ops"),
    ("/txn/segment-events/", "events"),
    ("/txn/segment-state/watermark/", "watermarks"),
    ("/log/", "bodies"),
    ("/topics/", "layouts"),
    ("/schemas/", "schema"),
    ("/sweep/", "turns"),
    ("/cursors/", "cursors"),
    ("/namespaces/", "said"),
    ("/persistent/logs/persistent%3A%2F%2Fpulsar%2F", "txn-entries"),
    ("/persistent/logs/", "entries"),
    ("/persistent/acks/", "ack-entries"),
    ("/persistent/topics/", "records"),
    ("/persistent/subscriptions/", "subscriptions"),
)
_WRITES = (
    ("Put /txn/tc-seq/", "ids"),
    ("Put /txn/app/", "raise"),
    ("Delete /txn/app/", "raise"),
    ("Append /log/log", "register"),
    ("Put /txn/op/", "record"),
    ("Append /txn/segment-events/", "tell"),
    ("Put /log/log-", "settle"),
    ("Put /txn/segment-state/aborted/", "settle"),
    ("Put /txn/segment-state/watermark/", "watermark"),
    ("Delete /txn/segment-state/", "clean"),
    ("Delete /txn/segment-events/", "clean"),
    ("Delete /txn/op/", "unrecord"),
    ("Delete /log/", "drop"),
    ("Delete /txn/id/", "forget"),
    ("Put /topics/", "layout"),
    ("Put /schemas/", "schema"),
    ("Delete /schemas/", "schema"),
    ("Put /sweep/", "turn"),
    ("Put /cursors/", "cursor"),
    ("Delete /cursors/", "clean"),
    ("Append /txn/subscription-events/", "tell"),
    ("Delete /txn/subscription-events/", "clean"),
    ("Put /namespaces/", "say"),
    ("Append /persistent/logs/persistent%3A%2F%2Fpulsar%2F", "log-txn"),
    ("Append /persistent/logs/", "append"),
    ("Append /persistent/acks/", "append-ack"),
    ("Put /persistent/topics/", "change"),
    ("Put /persistent/subscriptions/", "subscription"),
    ("Delete /persistent/", "leave"),
    ("Skip /log/", "skip"),
    ("Skip /persistent/", "skip"),
)
_FILES = {"publish": "publish", "read": "read", "list": "files", "delete": "unlink", "sleep": "pause", "index": "index"}
WORDS = frozenset({w for _, w in (*_READS, *_WRITES)} | set(_FILES.values()) | {"open", "decide", "list", "nothing"})


def word(kind: str, what: str, state: MemoryState) -> str:
    """The word of a call, from its `kind` and `what` as in `conformance.simulator.store.faults.Gate`."""
    if kind in _FILES:
        return _FILES[kind]
    if kind == "write":
        if what.startswith("Put /txn/id/"):
            path = what.removeprefix("Put ")
            return "open" if state.get(Key(path, path.rpartition("/")[2])) is None else "decide"
        return next(name for start, name in _WRITES if what.startswith(start))
    if kind == "keys" and what.startswith("/log/"):
        return "list"
    return next((name for start, name in _READS if what.startswith(start)), "nothing")
