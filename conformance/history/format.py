"""The recorded history: what an outside observer of a deployment saw, event by event, as JSON lines.

A recorder notes what clients asked for and were told (`Commit`, `Abort`, `Told`), what readers got (`Read`, `Plan`, `Poll`,
`Horizon`, `ReadFailed`, `Drained`), and, where it can watch the store, what records were seen to change (`Header`, `Registration`,
`Application`, `Watermark`, `Trim`, `Seal`, `Layout`, `Ack`, and for the older model `Entry`), besides sweeps, counts of what is at
rest, and faults. Every recorder gives what it has: the checker decides as much as that allows. In memory an event is a named
tuple; in a file it is one line,

    {"event":"told","at":1712.5,"call":"c7","said":"committed","txn":"0_12","number":977}

with the fields of its class (below, in `changes` and in `words`); those at their defaults are left out, nested tuples are arrays.
The first line is the `Start` with the format's number. A reader (`conformance.history.files`) refuses what it does not know: a
skipped event could hide a violation.

**Time.** `at` is when the recorder saw it, on ONE clock that never goes back (all recorders of one machine: `time.monotonic()`
in ms; a simulator: a count of steps). It is compared only with `<`: what carries the same `at` counts as concurrent. A
completion's `at` is taken after the reply, an invocation's (and `began`) before the request: so "a was over before b began" is
never claimed wrongly. A change of the store carries the moment at which it took effect, or is left out. Lines may come in any
order in several files: `files.merge` orders them. `*_ms` are milliseconds of the STORE's clock, by which deadlines are judged.

**Names.** Topics and segments as the protocol writes them (`topic://tenant/namespace/name`, `segment://.../<start>-<end>-<id>`),
transactions `<most>_<least>`. An application is the pair (`app`, `topic`); for one explicit transaction over several topics
`topic` is "". `call` is unique in the history.

**The older model.** `persistent://tenant/namespace/name` stands where topic:// has a topic or a segment. Each such topic has a log
of its own: what a reader of it records names it in `log`, and all numbers are of that log then. With `log` absent they are of the
common log, and say nothing of persistent topics that the event names besides. Where clients alone are recorded, a topic that was
migrated needs a `Successor`; it is named by its old name in commits, and its rows come from both.

What to record, at the least (a suite that sees clients only): a `Commit` before each commit with its rows, its `Told` after it
(none if the client died: the outcome is then open), `Read`s with their rows, `Poll`s of each stream, and a `Read` with
`final=True` at the end, when everything is decided. The simulator records all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from conformance.history.changes import Ack, Application, Entry, Header, Layout, Registration, Seal, Segment, Trim, Watermark
from conformance.history.words import Place, Position, Row, Time, Written

FORMAT = 1


class Start(NamedTuple):
    """The first line: who recorded, what clock, and the seed that makes it again."""

    at: Time
    recorder: str
    unit: str = "ms"
    seed: int | None = None
    format: int = FORMAT


# --- clients ------------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """Invocation: `who` is about to commit `version` of (`app`, `topic`) with these rows, as one transaction.

    query     id of the streaming query that replays (`by` in the application record); None for a batch write
    attempt   the token of this attempt (header's `attempt`), where the recorder knows it
    replays   the version is a checkpoint's: the same version by the same query may come again and is then skipped
    random    the application is this write's own, nobody can fence it
    rows      what it writes; empty: an empty batch
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
    """Invocation: `who` asks that this attempt (or transaction) be aborted, perhaps long after others took over."""

    at: Time
    call: str
    who: str
    app: str = ""
    topic: str = ""
    version: int | None = None
    attempt: str | None = None
    txn: str | None = None


class End(NamedTuple):
    """Invocation: `who` ends the transaction `txn`, by name; `action` is `commit` or `abort`. For explicit transactions."""

    at: Time
    call: str
    who: str
    txn: str
    action: str


class Told(NamedTuple):
    """Completion of a `Commit`, `Abort` or `End`: what its caller was told.

    said    committed  it counts, now or since an earlier `End` of the same kind
            skipped    the version was committed before, by the same query (or batch with the same version): nothing written
            conflict   refused: this version or a higher one is committed already (VersionConflict)
            aborted    an `Abort` or `End` that did its work
            failed     nothing of this call counts, now or ever
            unknown    anything else: it may have happened, or may still
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
    """A batch read has returned. It was asked for at `began`. Ranges are log numbers: start < number <= end.

    start, end, cut  None where the recorder does not know them (a DataFrame); a batch read is then one from the start
    segments         the segments that it knew, where the recorder has that
    final            everything that was begun is decided, and a sweep has run: it must show every committed row
    rows             in the order in which they were returned, segment by segment
    ordered          whether that order means anything (a collected DataFrame's order over tasks does not)
    more             `rows` are only what is new since the previous `Read` of `who`: all of that came again, once, as it was
                     (`files.shortened` finds out), so that reading all again and again makes no history that grows with its square
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
    """A stream was told where its next micro-batch ends: `latestOffset` from `start`, decided by `cut`.

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
    subscription   it was delivered to this subscription: what is acked there must not come. If acks are recorded, `stream` is one
                   life of a consumer: rows come once in it, and again to the next one as long as they are not acked
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
    """A read, plan or poll raised. `transient`: the store did not answer, the reader may ask again; else what it needed is gone."""

    at: Time
    who: str
    error: str
    transient: bool
    text: str = ""


class Drained(NamedTuple):
    """A subscription was said to have nothing left of these topics: its lag is 0, and nobody writes to them any more.

    into   what it was given was written there in the transactions that acknowledged it; each row has there the id that it had
    """

    at: Time
    began: Time
    subscription: str
    topics: tuple[str, ...]
    into: str = ""


# --- around -------------------------------------------------------------------------------------------------------


class Successor(NamedTuple):
    """The persistent topic was migrated: it goes on as `successor`, which has no key, as it had none. For a recorder of clients:
    the store shows a `Layout`.
    """

    at: Time
    topic: str
    successor: str


class Sweep(NamedTuple):
    """A sweep that ends all that is past its deadline is over, without an error. `now_ms`: store time when it began. `who` as with
    readers.
    """

    at: Time
    began: Time
    who: str
    now_ms: int


class Counts(NamedTuple):
    """What is at rest: kind of record (or file) -> how many, and how many there may be. `when`: after what."""

    at: Time
    when: str
    counts: dict[str, int]
    allowed: dict[str, int]


class Fault(NamedTuple):
    """A fault, for whoever reads the history: a kill, a cut connection, a jump of the clock."""

    at: Time
    what: str


class Complaint(NamedTuple):
    """Something that the recorder itself saw to be wrong, under this invariant (None: under none)."""

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
