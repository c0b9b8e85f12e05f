"""The events of a history (`conformance.history.format`) that record changes in the store. Each class is one kind of event."""

from __future__ import annotations

from typing import NamedTuple

from conformance.history.words import Place, Position, Time, Written


class Header(NamedTuple):
    """A change of the header of `txn`. `state`: OPEN, COMMITTED, ABORTED, or `gone` for a deletion.

    commit    number of the registration that a COMMITTED header names; None: the transaction has acks only
    deadline  store time in ms after which a sweep must abort the OPEN transaction; it includes the allowance
    by        the attempt whose late abort (`Abort`) changed the state; None: something else changed it
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
    """A change of a registration in the log. `state`: None if the registration appears, COMMITTED or VOID if it is settled, `gone`
    if its record is deleted. `txn`: None for a plain write. `rows`: the rows of the registration; empty unless it appears.
    """

    at: Time
    number: int
    txn: str | None = None
    state: str | None = None
    rows: tuple[Written, ...] = ()


class Application(NamedTuple):
    """A change of the application record (`app`, `topic`). `last_committed`: None for a deletion."""

    at: Time
    app: str
    topic: str
    last_committed: int | None = None
    by: str | None = None


class Watermark(NamedTuple):
    """A change of the watermark of a segment. `position`: None for a deletion."""

    at: Time
    segment: str
    position: Position | None = None


class Trim(NamedTuple):
    """Retention trimmed all rows of `segment` up to ledger `through`, at some moment from `began` to `at`. A read that begins after
    `at` must not return these rows. A read that returns after `began` may lack them. If the recorder watches the store, `began` and
    `at` are the same moment.
    """

    at: Time
    began: Time
    segment: str
    through: int


class Seal(NamedTuple):
    """A seal appeared in the log. It was made from the layout with this `epoch`. `why`: `split`, `merge`, `delete` or `migrate`."""

    at: Time
    number: int
    topic: str
    segments: tuple[str, ...]
    why: str
    epoch: int
    children: tuple[str, ...] = ()


class Segment(NamedTuple):
    """A segment in a layout. `start`, `end`: its hash range, both inclusive. `sealed_at`: the number of its seal in the log."""

    name: str
    start: int
    end: int
    active: bool
    parents: tuple[str, ...] = ()
    sealed_at: int | None = None


class Layout(NamedTuple):
    """A change of the topic record. `deleted`: whether the record is a tombstone."""

    at: Time
    topic: str
    epoch: int
    segments: tuple[Segment, ...]
    deleted: bool = False


class Ack(NamedTuple):
    """A change of an acknowledgement of `subscription` on `segment`.

    state      pending   `txn` has a pending ack
               acked     the cursor contains the ack (`txn` is None for an ack outside a transaction)
               released  the pending ack was dropped after the abort of its transaction; the rows are delivered again
               moved     a seek, or the creation of the subscription, set the cursor: only `ranges` are acknowledged now, and
                         pending acks stay
               deleted   the subscription was deleted, with all pending acks
    ranges     the acknowledged entries or rows, as ranges with both ends inclusive; `deleted` has none, `moved` may have none
    cumulative whether the ack has one range and covers all positions up to its end
    """

    at: Time
    segment: str
    subscription: str
    state: str
    ranges: tuple[tuple[Place, Place], ...]
    txn: str | None = None
    cumulative: bool = False


class Entry(NamedTuple):
    """An entry was appended to a log of the marker-based model: the log of a persistent topic, or the log of a coordinator.

    log        the persistent topic; a coordinator's log is `persistent://pulsar/system/__transaction_log_<n>`
    number     the number of the entry; each log has its own numbers
    kind       in a topic's log DATA, COMMIT or ABORT (markers), SEAL; in a coordinator's log NEW, ADD (participants), STATUS
    id         unique to the append: a second append with the same id and transaction is void
    txn        `<most>_<least>`; None: a plain message, or a seal
    rows       the rows of DATA
    low_water  the low-water mark of a marker: all transactions of its coordinator up to this sequence number have ended everywhere
    state      the state in STATUS: COMMITTING, COMMITTED, ABORTING or ABORTED
    topics     the participants in NEW and ADD
    deadline   in NEW: store time in ms after which a sweep must abort the transaction; it includes the allowance
    by         in STATUS: the attempt whose late abort (`Abort`) appended the entry; None: something else appended it
    why        the reason in SEAL, such as `migrate`

    `app`, `topic`, `version` and `attempt` are in NEW and mean the same as in `Header`.
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
