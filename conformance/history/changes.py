"""The events that say how records of the store were seen to change (`conformance.history.format`)."""

from __future__ import annotations

from typing import NamedTuple

from conformance.history.words import Place, Position, Time, Written


class Header(NamedTuple):
    """The header of `txn` was seen to change. `state`: OPEN, COMMITTED, ABORTED, or `gone` when it was deleted.

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
    """A registration of the log was seen to change. `state`: None when it appears, COMMITTED or VOID once settled, `gone` when
    the record was dropped. `txn` None: a plain write. `rows` (with their segments) only when it appears.
    """

    at: Time
    number: int
    txn: str | None = None
    state: str | None = None
    rows: tuple[Written, ...] = ()


class Application(NamedTuple):
    """The application record (`app`, `topic`) was seen to change. `last_committed` None: it was deleted."""

    at: Time
    app: str
    topic: str
    last_committed: int | None = None
    by: str | None = None


class Watermark(NamedTuple):
    """The watermark of a segment was seen to change. `position` None: it was deleted."""

    at: Time
    segment: str
    position: Position | None = None


class Trim(NamedTuple):
    """Retention has taken the rows of `segment` up to ledger `through`, all of them. Reads that begin after `at` do not show them
    any more, nor do those miss them that return after `began`. Where the store is watched the two are the same moment.
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
    """The topic record was seen to change. `deleted`: it is a tombstone now."""

    at: Time
    topic: str
    epoch: int
    segments: tuple[Segment, ...]
    deleted: bool = False


class Ack(NamedTuple):
    """What became of an acknowledgement of `subscription` on `segment`.

    state      pending   claimed by `txn`
               acked     in the cursor, for ever (`txn` None: a plain ack)
               released  the claim is dropped, its transaction was aborted: to be delivered again
               moved     by a seek, or the subscription was made there: exactly `ranges` are acked now; claims stay
               deleted   the subscription was deleted, with all claims
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
    """An entry was seen to be appended to a log of the older model: of a persistent topic, or of a coordinator.

    log      the topic; a coordinator's log is `persistent://pulsar/system/__transaction_log_<n>`
    number   counts in this log alone
    kind     of a topic DATA, COMMIT or ABORT (markers), SEAL; of a coordinator NEW, ADD (participants), STATUS
    id       unique to the append: a second one with it, of the same transaction, counts for nothing
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
