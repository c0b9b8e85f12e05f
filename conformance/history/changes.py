"""The events of observed changes to store records (`conformance.history.format`)."""

from __future__ import annotations

from typing import NamedTuple

from conformance.history.words import Place, Position, Time, Written


class Header(NamedTuple):
    """A change of the header of `txn`. `state`: OPEN, COMMITTED, ABORTED, or `gone` for a deletion.

    commit    registration that a COMMITTED header names; None: it committed acks only
    deadline  store time in ms after which an OPEN one must be aborted, the clock allowance included
    by        the attempt on whose behalf the state was changed, if it was changed by an abort of that attempt
    """

    at: Time
    txn: str
    state: str
    app: str | None = None
    topic: str | None = None
    version: int | None = None
    attempt: str | None = None
    commit: int | None = None
    deadline: int | None = None
    by: str | None = None


class Registration(NamedTuple):
    """A change of a registration in the log. `state`: None when it appears, COMMITTED or VOID once settled, `gone` when the record
    was deleted. `txn` None: a plain write. `rows` (with their segments) only when it appears.
    """

    at: Time
    number: int
    txn: str | None = None
    state: str | None = None
    rows: tuple[Written, ...] = ()


class Application(NamedTuple):
    """A change of the application record (`app`, `topic`). `last_committed` None: a deletion."""

    at: Time
    app: str
    topic: str
    last_committed: int | None = None
    by: str | None = None


class Watermark(NamedTuple):
    """A change of the watermark of a segment. `position` None: a deletion."""

    at: Time
    segment: str
    position: Position | None = None


class Trim(NamedTuple):
    """Retention has trimmed all rows of `segment` up to ledger `through`. A read that begins after `at` does not return them; a
    read that returns after `began` may lack them. Where the store is watched the two are the same moment.
    """

    at: Time
    began: Time
    segment: str
    through: int


class Seal(NamedTuple):
    """A seal appeared in the log, made from layout `epoch`. `why`: split, merge or delete."""

    at: Time
    number: int
    topic: str
    segments: tuple[str, ...]
    why: str
    epoch: int
    children: tuple[str, ...] = ()


class Segment(NamedTuple):
    """A segment in a layout. `start`, `end`: hash range, inclusive. `sealed_at`: number of its seal in the log."""

    name: str
    start: int
    end: int
    active: bool
    parents: tuple[str, ...] = ()
    sealed_at: int | None = None


class Layout(NamedTuple):
    """A change of the topic record. `deleted`: the record is a tombstone from now on."""

    at: Time
    topic: str
    epoch: int
    segments: tuple[Segment, ...]
    deleted: bool = False


class Ack(NamedTuple):
    """A change of an acknowledgement of `subscription` on `segment`.

    state      pending   a pending ack of `txn`
               acked     recorded in the cursor (`txn` None: a plain ack)
               released  the pending ack is dropped after the abort of its transaction: rows are delivered again
               moved     by a seek or by creation: exactly `ranges` are acked now; pending acks stay
               deleted   the subscription was deleted, with all pending acks
    ranges     entries or single rows, both ends inclusive; of `moved` perhaps none, of `deleted` none
    cumulative all positions up to the end of the (only) range
    """

    at: Time
    segment: str
    subscription: str
    state: str
    ranges: tuple[tuple[Place, Place], ...]
    txn: str | None = None
    cumulative: bool = False


class Entry(NamedTuple):
    """An entry was appended to a log of the marker-based model: of a persistent topic, or of a coordinator.

    log      the persistent topic; a coordinator's log is `persistent://pulsar/system/__transaction_log_<n>`
    number   counts in this log alone
    kind     of a topic DATA, COMMIT or ABORT (markers), SEAL; of a coordinator NEW, ADD (participants), STATUS
    id       unique to the append: a second append with the same id and transaction is void
    txn      `<most>_<least>`; None: a plain message, or a seal
    rows     of DATA
    low_water  of a marker: all transactions of its coordinator up to this sequence number have ended everywhere
    state    of STATUS: COMMITTING, COMMITTED, ABORTING or ABORTED
    topics   of NEW and ADD: participants
    deadline   of NEW: store time in ms after which it must be aborted, the clock allowance included; the rest as in `Header`
    by       of STATUS: the attempt on whose behalf it was appended, if that was an abort of that attempt
    why      of SEAL
    """

    at: Time
    log: str
    number: int
    kind: str
    id: str
    txn: str | None = None
    rows: tuple[Written, ...] = ()
    low_water: int | None = None
    state: str | None = None
    topics: tuple[str, ...] = ()
    app: str | None = None
    topic: str | None = None
    version: int | None = None
    attempt: str | None = None
    deadline: int | None = None
    by: str | None = None
    why: str | None = None
