"""The rules of the log of acknowledgements of one subscription of a Pulsar topic. Pure: no I/O, no clock.

The broker 5.0.0-M1 can forget acknowledgements: those of the last second if it is killed, and those of a transaction if it restarts
before the commit. It never forgets an entry that it has confirmed. So a consumer writes its acknowledgements as records into a log,
and the cursors of the broker only follow them. The records are JSON, in the order of the log:

    take        plain          a consumer takes over
    moved       plain          the subscription was created here, or moved here: exactly these rows are acknowledged
    acked       plain          these rows are acknowledged
    begin       plain          this transaction may have acknowledgements
    done        transactional  the acknowledgements of a transaction, committed together with its rows
    aborted     plain          these transactions were aborted
    deleted     plain          the subscription was deleted: nothing before this record counts any more
    checkpoint  plain          the state after all records before it, so that a reader may begin with it

Only one consumer may write to the log. Four facts make an acknowledgement in a transaction count exactly if its rows do:

- The `done` is in the transaction, so its rows and its acknowledgements are committed together.
- The `begin` is in the log before the `done`. So the next consumer learns of every transaction that may still commit, and aborts it
  before it delivers a row.
- The next consumer asks the coordinator how each of these transactions ended. It ignores the `done` of one that was aborted, and
  records this, because the broker 5.0.0-M1 can deliver rows of an aborted transaction after a crash. The coordinator forgets
  transactions some time after their end. Then the `done` counts.
- A consumer reads the log up to its own `take`. All records of the consumers before it are before this `take`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metadata.records.row_ranges import FIRST, NONE, Row, Rows, parse_all, texts, union
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import LogDamaged
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.log_records import Outcome, decoded, encoded

WHOLE: Final = Row(10**18, 0, 0)
"""The end of the rows of a sealed segment that is acknowledged as a whole. No ledger has such a number."""
RowsBySegment = Mapping[str, Rows]
Positions = Mapping[str, Position]


@dataclass(frozen=True)
class Take:
    """A consumer takes over."""

    consumer: str


@dataclass(frozen=True)
class Moved:
    """Exactly these rows are acknowledged. `sent`: see `State`."""

    rows: RowsBySegment
    sent: Positions = field(default_factory=dict)


@dataclass(frozen=True)
class Acked:
    """These rows are acknowledged, too."""

    rows: RowsBySegment


@dataclass(frozen=True)
class Begin:
    """A transaction that may be committed."""

    txn: TxnId


@dataclass(frozen=True)
class Done:
    """The acknowledgements of a transaction."""

    txn: TxnId
    rows: RowsBySegment


@dataclass(frozen=True)
class Aborted:
    """These transactions were aborted. Their `Done` does not count, also if the broker delivers it."""

    txns: tuple[TxnId, ...]


@dataclass(frozen=True)
class Deleted:
    """The subscription was deleted."""


@dataclass(frozen=True)
class State:
    """What the records up to some position say. `exists`: whether the subscription was created. `rows`: the acknowledged rows of
    each segment. `sent`: for each segment of the writers' log, a position up to which a reader of the rows that are
    left needs no records. `owner`: the last consumer that took over. `records`: the number of records since the last checkpoint.
    """

    exists: bool = False
    rows: RowsBySegment = field(default_factory=dict)
    sent: Positions = field(default_factory=dict)
    owner: str | None = None
    records: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """The state after all records before the checkpoint. None of the transactions before it may still commit."""

    state: State


Record = Take | Moved | Acked | Begin | Done | Aborted | Deleted | Checkpoint


def joined(one: RowsBySegment, other: RowsBySegment) -> dict[str, Rows]:
    """Return the rows of both."""
    return {name: union(one.get(name, NONE), other.get(name, NONE)) for name in one.keys() | other.keys()}


def beginning(rows: Rows) -> Row:
    """Return the end of the rows that are acknowledged without a gap from the beginning of the segment."""
    return rows[0][1] if rows and rows[0][0] == FIRST else FIRST


def after(state: State, record: Record) -> State:
    """Return the state after one more record. The `Done` of an aborted transaction must be left out."""
    counted = dataclasses.replace(state, records=state.records + 1)
    match record:
        case Take(consumer):
            return dataclasses.replace(counted, owner=consumer)
        case Moved(rows, sent):
            return dataclasses.replace(counted, exists=True, rows=dict(rows), sent=dict(sent))
        case Acked(rows) | Done(_, rows):
            return dataclasses.replace(counted, rows=joined(state.rows, rows))
        case Begin() | Aborted():
            return counted
        case Deleted():
            return State(owner=state.owner, records=counted.records)
        case Checkpoint(found):
            # A checkpoint counts only if it is read first. A later one could lack a record of another consumer.
            return dataclasses.replace(found if state == State() else state, records=0)


class Recovery:
    """What the log says to a consumer that takes over. Fed by `resolving.replayed`. `own`: the open transactions of this consumer,
    which are not aborted. They have no `done` yet.
    """

    replaced = False
    """The log tells only at its end whether another consumer has taken over (`owner_before`)."""

    def __init__(self, own: Collection[TxnId]) -> None:
        self._own = own
        self._outcomes: dict[TxnId, Outcome | None] = {}
        self._records: list[Record] = []
        self._begun: dict[TxnId, None] = {}
        self._done: set[TxnId] = set()
        self._aborted: set[TxnId] = set()
        """The transactions of which the log says that they were aborted."""

    def read(self, record: Record) -> None:
        """Take the next record."""
        self._records.append(record)
        if isinstance(record, Begin | Done):
            self._begun[record.txn] = None
        if isinstance(record, Done):
            self._done.add(record.txn)
        elif isinstance(record, Aborted):
            self._aborted.update(record.txns)

    def leftovers(self) -> list[TxnId]:
        """Return the transactions of which the log does not say how they ended."""
        return [txn for txn in self._begun if txn not in self._own and txn not in self._aborted]

    def ended(self, outcomes: Mapping[TxnId, Outcome | None]) -> None:
        """Take note of how leftovers ended. None: the coordinator has forgotten it; then its `done` counts."""
        self._outcomes |= outcomes

    @property
    def missing(self) -> list[TxnId]:
        """The leftovers that were committed and whose `done` was not read."""
        return [txn for txn in self._begun if self._outcomes.get(txn) == "committed" and txn not in self._done]

    def newly_aborted(self) -> tuple[TxnId, ...]:
        """Return the transactions that were aborted, and of which the log does not say so."""
        return tuple(txn for txn in self._begun if self._outcomes.get(txn) == "aborted" and txn not in self._aborted)

    def owner_before(self) -> str | None:
        """Return the consumer that had the log before the last `take`."""
        return self._folded(self._records[: max(n for n, one in enumerate(self._records) if isinstance(one, Take))]).owner

    def finish(self) -> State:
        """Return the state. Raises LogDamaged if a transaction was committed without a `done`."""
        if self.missing:
            raise LogDamaged(
                f"The transactions {', '.join(txn.text for txn in self.missing)} are committed, but the log of acknowledgements "
                "has no record of it.",
                advice="Someone else has committed them. Check their rows, delete the subscription, and create it again.",
            )
        return self._folded(self._records)

    def _folded(self, records: Sequence[Record]) -> State:
        state, void = State(), self._aborted.union(self.newly_aborted())
        for record in records:
            if not (isinstance(record, Done) and record.txn in void):
                state = after(state, record)
        return state


# --- bytes ---


def encode(record: Record) -> bytes:
    """Return the JSON text of a record."""
    return encoded(_fields(record))


def _fields(record: Record) -> dict[str, object]:
    match record:
        case Take(consumer):
            return {"kind": "take", "consumer": consumer}
        case Moved(rows, sent):
            return {"kind": "moved", "rows": _texts(rows), "sent": {name: place.text for name, place in sent.items()}}
        case Acked(rows):
            return {"kind": "acked", "rows": _texts(rows)}
        case Begin(txn):
            return {"kind": "begin", "txn": txn.text}
        case Done(txn, rows):
            return {"kind": "done", "txn": txn.text, "rows": _texts(rows)}
        case Aborted(txns):
            return {"kind": "aborted", "txns": [txn.text for txn in txns]}
        case Deleted():
            return {"kind": "deleted"}
        case Checkpoint(state):
            moved = _fields(Moved(state.rows, state.sent)) if state.exists else None
            return {"kind": "checkpoint", "owner": state.owner, "state": moved}


def decode(data: bytes) -> Record:
    """Return a record from its JSON text. Raises LogDamaged."""
    return decoded(data, _record)


def _record(fields: Mapping[str, Any]) -> Record:
    match fields["kind"]:
        case "take":
            return Take(fields["consumer"])
        case "moved":
            return Moved(_rows(fields["rows"]), {name: Position.parse(place) for name, place in fields["sent"].items()})
        case "acked":
            return Acked(_rows(fields["rows"]))
        case "begin":
            return Begin(TxnId.parse(fields["txn"]))
        case "done":
            return Done(TxnId.parse(fields["txn"]), _rows(fields["rows"]))
        case "aborted":
            return Aborted(tuple(TxnId.parse(text) for text in fields["txns"]))
        case "deleted":
            return Deleted()
        case "checkpoint":
            found = State() if fields["state"] is None else after(State(), _record(fields["state"]))
            return Checkpoint(dataclasses.replace(found, owner=fields["owner"], records=0))
        case other:
            raise ValueError(f"unknown kind {other!r}")


def _texts(rows: RowsBySegment) -> dict[str, list[str]]:
    return {name: texts(found) for name, found in sorted(rows.items()) if found}


def _rows(found: Mapping[str, list[str]]) -> dict[str, Rows]:
    return {name: parse_all(written) for name, written in found.items()}
