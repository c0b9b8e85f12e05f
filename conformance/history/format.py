"""The recorded history: the events of a deployment, seen from outside, as JSON lines.

A recorder notes the requests of clients and their answers (`Commit`, `Abort`, `Told`) and the results of readers (`Read`, `Plan`,
`Poll`, `Horizon`, `ReadFailed`, `Drained`). If it can watch the store, it notes the changes of records (`Header`, `Registration`,
`Application`, `Watermark`, `Trim`, `Seal`, `Layout`, `Ack`, and for the marker-based model `Entry`). It also notes sweeps, the
steady-state footprint, and faults. The checker judges as much as the recorded events allow. In memory an event is a named tuple; in
a file it is one line,

    {"event":"told","at":1712.5,"call":"c7","said":"committed","txn":"0_12","number":977}

with the fields of its class (below, in `changes` and in `words`). Fields at their defaults are omitted; nested tuples are arrays.
The first line is the `Start` with the format's number. A reader (`conformance.history.files`) refuses unknown events and fields: a
skipped event could hide a violation.

**Time.** `at` is the time of the event on ONE clock that never goes back (all recorders of one machine: `time.monotonic()` in ms; a
simulator: a count of steps). It is compared only with `<`: events with the same `at` count as concurrent. A completion's `at` is
taken after the reply, an invocation's (and `began`) before the request. So "a ended before b began" is never claimed wrongly. A
change of the store carries the moment at which it took effect, or is not recorded. Several files are merged and ordered by
`files.merge`. `*_ms` are milliseconds of the STORE's clock, by which deadlines are judged.

**Names.** Topics and segments as the protocol writes them (`topic://tenant/namespace/name`, `segment://.../<start>-<end>-<id>`),
transactions `<most>_<least>`. An application is the pair (`app`, `topic`); for one explicit transaction over several topics `topic`
is "". `call` is unique in the history.

**The marker-based model.** `persistent://tenant/namespace/name` is the name of both the topic and its only segment. Each such topic
has a log of its own. The events of its readers name it in `log`, and all numbers in them are of that log. Without `log` the numbers
are of the common log, and say nothing about persistent topics named in the same event. In a history of clients alone a migrated
topic needs a `Successor`. Commits name it by its old name, and its rows come from both topics.

The least to record (for a suite that sees clients only): a `Commit` before each commit with its rows; its `Told` after it (none if
the client died: the outcome is then unknown); `Read`s with their rows; `Poll`s of each stream; and a `Read` with `final=True` at
the end, when everything is decided. The simulator records all events.
"""

from __future__ import annotations

from typing import NamedTuple

from conformance.history.changes import Ack, Application, Entry, Header, Layout, Registration, Seal, Segment, Trim, Watermark
from conformance.history.words import Place, Position, Row, Time, Written

FORMAT = 1


class Start(NamedTuple):
    """The first line: the recorder, its clock, and the seed that repeats the run."""

    at: Time
    recorder: str
    unit: str = "ms"
    seed: int | None = None
    format: int = FORMAT


# --- clients ------------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """Invocation: `who` is about to commit `version` of (`app`, `topic`) with these rows, as one transaction.

    query     id of the streaming query (`by` in the application record); None for a batch write
    attempt   the token of this attempt (header's `attempt`), where the recorder knows it
    replays   the version is a checkpoint's: the same version by the same query may come again and is then skipped
    random    the application belongs to this write alone: no other attempt can fence it
    rows      the rows to write; none for an empty batch
    """

    at: Time
    call: str
    who: str
    app: str
    topic: str
    version: int
    rows: tuple[Written, ...]
    query: str | None = None
    attempt: str | None = None
    replays: bool = False
    random: bool = False


class Abort(NamedTuple):
    """Invocation: `who` requests the abort of this attempt (or transaction), possibly long after a successor took over."""

    at: Time
    call: str
    who: str
    app: str = ""
    topic: str = ""
    version: int | None = None
    attempt: str | None = None
    txn: str | None = None


class End(NamedTuple):
    """Invocation: `who` ends the transaction `txn` by name; `action` is `commit` or `abort`. For explicit transactions."""

    at: Time
    call: str
    who: str
    txn: str
    action: str


class Told(NamedTuple):
    """Completion of a `Commit`, `Abort` or `End`: the answer to its caller.

    said    committed  the transaction is committed, now or by an earlier `End` of the same kind
            skipped    the version was committed before, by the same query (or batch with the same version): nothing written
            conflict   refused: this version or a higher one is committed already (VersionConflict)
            aborted    an `Abort` or `End` that succeeded
            failed     no row or ack of this call is committed, now or later
            unknown    any other answer: the call may have taken effect, or may still
    number  the registration's number, where the caller learns it; None for an empty batch
    error   class name of what was raised
    """

    at: Time
    call: str
    said: str
    txn: str | None = None
    number: int | None = None
    error: str | None = None


# --- readers ------------------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """A batch read has returned. Its request was made at `began`. Ranges are log numbers: start < number <= end.

    start, end, cut  None where the recorder does not know them (a DataFrame); a batch read is then one from the start
    segments         the segments known to the read, where the recorder knows them
    final            every transaction is decided, and a sweep has run: the read must return every committed row
    rows             in the order in which they were returned, segment by segment
    ordered          whether that order is meaningful (the order of a collected DataFrame over tasks is not)
    more             `rows` are only the new rows since the previous `Read` of `who`, whose rows all came again, once and unchanged
                     (see `files.shortened`): the size of a history of repeated full reads stays linear
    """

    at: Time
    began: Time
    who: str
    topics: tuple[str, ...]
    rows: tuple[Row, ...]
    start: int | None = None
    end: int | None = None
    cut: int | None = None
    segments: tuple[str, ...] | None = None
    final: bool = False
    ordered: bool = True
    more: bool = False
    log: str = ""


class Plan(NamedTuple):
    """The planned end of a stream's next micro-batch: `latestOffset` from `start`, decided by `cut`.

    `cut` None: not known, a limit of rows or bytes may have lowered `end`.
    """

    at: Time
    began: Time
    stream: str
    topics: tuple[str, ...]
    start: int
    end: int
    cut: int | None = None
    log: str = ""


class Poll(NamedTuple):
    """A micro-batch of `stream` was returned: start < number <= end. A replay has the `batch` (and range) of an earlier one.

    start, end     None where the recorder does not know them
    subscription   the subscription of the delivery: its acked rows must not come. If acks are recorded, `stream` is one life of a
                   consumer: a row comes once in it, and again in the next life as long as it is not acked
    """

    at: Time
    began: Time
    stream: str
    batch: int
    topics: tuple[str, ...]
    rows: tuple[Row, ...]
    start: int | None = None
    end: int | None = None
    cut: int | None = None
    segments: tuple[str, ...] | None = None
    subscription: str | None = None
    ordered: bool = True
    log: str = ""


class Horizon(NamedTuple):
    """A reader's horizon: its cut and each segment's maxReadPosition, (segment, position)."""

    at: Time
    began: Time
    who: str
    topics: tuple[str, ...]
    cut: int
    positions: tuple[tuple[str, Position], ...] = ()
    log: str = ""


class ReadFailed(NamedTuple):
    """A read, plan or poll raised. `transient`: the store did not answer and the reader may retry; else the rows it needed are
    gone.
    """

    at: Time
    who: str
    error: str
    transient: bool
    text: str = ""


class Drained(NamedTuple):
    """A subscription reported no lag on these topics, and no writer uses them any more.

    into   the topic to which the delivered rows were copied in the transactions that acknowledged them; rows keep their ids
    """

    at: Time
    began: Time
    subscription: str
    topics: tuple[str, ...]
    into: str = ""


# --- around -------------------------------------------------------------------------------------------------------


class Successor(NamedTuple):
    """The persistent topic was migrated to `successor`, which has no key, as the persistent topic had none. Only for a recorder of
    clients: a recorder of the store shows a `Layout`.
    """

    at: Time
    topic: str
    successor: str


class Sweep(NamedTuple):
    """A sweep that ends all transactions past their deadline has finished without an error. `now_ms`: store time at its beginning.
    `who` as with readers.
    """

    at: Time
    began: Time
    who: str
    now_ms: int


class Counts(NamedTuple):
    """The steady-state footprint: kind of record (or file) -> its count and its limit. `when`: the point of the run."""

    at: Time
    when: str
    counts: dict[str, int]
    allowed: dict[str, int]


class Fault(NamedTuple):
    """An injected fault, for readers of the history: a kill, a cut connection, a jump of the clock."""

    at: Time
    what: str


class Complaint(NamedTuple):
    """A violation that the recorder itself saw, under this invariant (None: under none)."""

    at: Time
    what: str
    invariant: int | None = None


Event = (
    Start
    | Commit
    | Abort
    | End
    | Told
    | Header
    | Registration
    | Application
    | Watermark
    | Trim
    | Seal
    | Layout
    | Ack
    | Entry
    | Read
    | Plan
    | Poll
    | Horizon
    | ReadFailed
    | Drained
    | Successor
    | Sweep
    | Counts
    | Fault
    | Complaint
)

__all__ = [
    "FORMAT",
    "Abort",
    "Ack",
    "Application",
    "Commit",
    "Complaint",
    "Counts",
    "Drained",
    "End",
    "Entry",
    "Event",
    "Fault",
    "Header",
    "Horizon",
    "Layout",
    "Place",
    "Plan",
    "Poll",
    "Position",
    "Read",
    "ReadFailed",
    "Registration",
    "Row",
    "Seal",
    "Segment",
    "Start",
    "Successor",
    "Sweep",
    "Time",
    "Told",
    "Trim",
    "Watermark",
    "Written",
]
