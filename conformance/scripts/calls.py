"""Names for the calls to the store and the disk. A script names a call to say where a process crashes, sleeps or loses a reply.

| word | the call |
|---|---|
| ids | read or take the next block of transaction ids |
| application | read the application record |
| open | write the new header, with the application record in one group |
| register | append to the log (a registration or a seal) |
| list, bodies | list the numbers of the log; read its entries |
| headers | read headers |
| layouts, layout | read topic records; write one |
| watermarks, watermark | read watermark records; write one |
| ops | list or read op records |
| record | write op records |
| decide | end a header by CAS: COMMITTED or ABORTED |
| tell | append events |
| events | read events |
| settle | mark a registration COMMITTED or VOID |
| unrecord | delete op records |
| drop | delete registrations |
| forget | delete a header |
| raise | write or delete the application record alone |
| clean | delete events, aborted records, watermarks and cursors |
| index | scan an index |
| cursors, cursor | read or list cursors; write one (to claim, acknowledge, settle or move) |
| said, say | read the policies of a namespace; write them |
| turns, turn | read the record of the turn to sweep; take the turn |
| schema | read, write or delete a schema |
| pause | wait |
| txn-entries, log-txn | list or read a coordinator's log; append to it |
| entries, append | list or read a persistent topic's log; append to it (data, markers, a seal) |
| ack-entries, append-ack | list or read a pending-ack log; append to it |
| records, change | read records of persistent topics; write one (property, snapshot, trimmed position) |
| subscriptions, subscription | read records of the subscriptions of persistent topics; write one |
| leave | delete entries of the logs or records of persistent topics |
| skip | let the log skip numbers |
| publish, read, files, unlink | write, read, list or delete files |
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
    """Return the name of a call; `nothing` for a read without a name. `kind` and `what` are the arguments of a
    `conformance.simulator.store.faults.Gate`.
    """
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
