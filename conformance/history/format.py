"""The recorded history: the events of a deployment, seen from outside, as JSON lines.

A recorder notes the requests of clients and their answers (`Commit`, `Abort`, `Told`) and the results of readers (`Read`, `Plan`,
`Poll`, `Horizon`, `ReadFailed`, `Drained`). If it can watch the store, it notes the changes of records (`Header`, `Registration`,
`Application`, `Watermark`, `Trim`, `Seal`, `Layout`, `Ack`, and for the marker-based model `Entry`). It also notes sweeps, how
many records and files exist at certain points, and faults. The checker judges as much as the recorded events allow. In
memory an event is a named tuple; in a file it is one line:

    {"event":"told","at":1712.5,"call":"c7","said":"committed","txn":"0_12","number":977}

The line has the fields of the event's class (in this module, in `changes` and in `words`). Fields with their default value are
omitted. Nested tuples are arrays. The first line is the `Start` with the number of the format. A reader
(`conformance.history.files`) refuses unknown events and fields, because a skipped event could hide a violation.

**Time.** `at` is the time of the event on one clock that never goes back. All recorders of one machine use `time.monotonic()` in
ms; a simulator counts steps. Times are compared only with `<`, so events with the same `at` count as concurrent. An event is an
invocation (a request, such as `Commit`), a completion (an answer, such as `Told` or `Read`), or a change of the store. The `at` of
a completion is taken after the reply. The `at` of an invocation is taken before the request, and so is every `began`. So if the
history says that one operation ended before another began, that is true. The `at` of a change of the store is the moment at which
the change took effect. A change whose moment is unknown is not recorded. `files.merge` merges and orders several files. Fields
`*_ms` are milliseconds of the store's clock, by which deadlines are judged.

**Names.** Topics and segments have the names of the protocol (`topic://tenant/namespace/name`, `segment://.../<start>-<end>-<id>`),
transactions the names `<most>_<least>`. An application is the pair (`app`, `topic`). `topic` is "" for one explicit transaction
over several topics. `call` is the name of a request, and is unique in the history.

**The marker-based model.** `persistent://tenant/namespace/name` is the name of both the topic and its only segment. Each such topic
has its own log. If an event of a reader names this topic in `log`, all numbers in the event are numbers of that log. In an event
without `log`, the numbers are those of the common log, the log of all topic:// topics; they say nothing about persistent topics
that the event also names. In a history without store records, each migrated topic needs a `Successor`: commits then name the topic
by its old name, and readers get its rows from both topics.

A suite that sees only clients must record at least these events: a `Commit` with its rows before each commit; a `Told` after the
commit (none if the client died, because the outcome is then unknown); a `Read` with the rows of each read; a `Poll` for each
micro-batch; and at the end, when everything is decided, a `Read` with `final=True`. The simulator records all events.
"""

from __future__ import annotations

from typing import NamedTuple

from conformance.history.changes import Ack, Application, Entry, Header, Layout, Registration, Seal, Segment, Trim, Watermark
from conformance.history.words import Place, Position, Row, Time, Written

FORMAT = 1


class Start(NamedTuple):
    """The first line of a history: the recorder, the unit of its clock, and the seed that repeats the run.

    spanning  whether a transaction may have rows of one key in a segment and then in a child of it (Pulsar). In this
              project's own topics this cannot happen: a transaction whose segment is split starts again, and then writes
              only to the children.
    """

    at: Time
    recorder: str
    unit: str = "ms"
    seed: int | None = None
    format: int = FORMAT
    spanning: bool = False


# --- clients ------------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """Invocation: `who` is about to commit `version` of (`app`, `topic`) with these rows, as one transaction.

    query     id of the streaming query (`by` in the application record); None for a batch write
    attempt   the id of this attempt (`attempt` in the header), if the recorder knows it
    replays   whether the version comes from a checkpoint. The same query may then commit the version again, and is told `skipped`
    random    whether the application was made for this write alone, so that no other attempt can fence the write
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
    """Invocation: `who` is about to abort an attempt or a transaction, perhaps long after a later attempt has taken over."""

    at: Time
    call: str
    who: str
    app: str = ""
    topic: str = ""
    version: int | None = None
    attempt: str | None = None
    txn: str | None = None


class End(NamedTuple):
    """Invocation: `who` is about to end the explicit transaction with the id `txn`. `action`: `commit` or `abort`."""

    at: Time
    call: str
    who: str
    txn: str
    action: str


class Told(NamedTuple):
    """Completion of a `Commit`, `Abort` or `End`: the answer to its caller.

    said    committed  the transaction is committed, by this call or by an earlier `End` with the same action
            skipped    the version was committed earlier, by the same query or by a batch write; nothing was written
            conflict   the call was refused, because this version or a higher one is committed (VersionConflict)
            aborted    the `Abort` or `End` succeeded
            failed     no row or ack of this call is or ever will be committed
            unknown    any other answer: the call may have taken effect, or may still take effect
    number  the number of the registration, if the caller learns it; None for an empty batch
    error   the class name of the exception
    """

    at: Time
    call: str
    said: str
    txn: str | None = None
    number: int | None = None
    error: str | None = None


# --- readers ------------------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """A batch read has returned. It was requested at `began`. It reads the log numbers start < number <= end.

    start, end, cut  None if the recorder does not know them (as for a DataFrame); the read then begins at the first row
    segments         the segments that the read planned with, if the recorder knows them
    final            whether every transaction was decided and a sweep had run before the read; it must return all committed rows
    rows             the rows, in the order in which the read returned them
    ordered          whether the order of `rows` is the reader's (False for a collected DataFrame, whose tasks return in any order)
    more             whether `rows` has only the rows that the previous `Read` of `who` did not return. This read also returned all
                     rows of the previous one, once and unchanged; they are left out to save space (`files.shortened`)
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
    """A stream has planned the end of its next micro-batch (`latestOffset`), which begins at `start`. `cut`: the cut of the plan;
    None if it is unknown. A limit of rows or bytes may have lowered `end`.
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
    """A micro-batch of `stream` was returned, with the numbers start < number <= end. A replay has the `batch` and the range of the
    first delivery.

    start, end     None if the recorder does not know them
    subscription   the subscription to which the rows were delivered; None: a stream without a subscription. Acknowledged rows of a
                   subscription must not be delivered again. If acks are recorded, each `stream` is one consumer: it gets each row
                   at most once; the next consumer gets the rows that are still unacknowledged
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
    """The horizon of a reader: its cut, and pairs (segment, maxReadPosition)."""

    at: Time
    began: Time
    who: str
    topics: tuple[str, ...]
    cut: int
    positions: tuple[tuple[str, Position], ...] = ()
    log: str = ""


class ReadFailed(NamedTuple):
    """A read, plan or poll raised an error. `transient`: True if the store did not answer, so that the reader can retry; False if
    the rows that it needed are gone.
    """

    at: Time
    who: str
    error: str
    transient: bool
    text: str = ""


class Drained(NamedTuple):
    """A subscription reported that it has no lag on these topics. No process writes to them any more.

    into   the topic to which the acknowledging transactions copied the rows; a copy keeps the row's id. "": they copied none
    """

    at: Time
    began: Time
    subscription: str
    topics: tuple[str, ...]
    into: str = ""


# --- around -------------------------------------------------------------------------------------------------------


class Successor(NamedTuple):
    """The persistent topic `topic` was migrated to `successor`. Neither topic has a key. Only a recorder that does not watch the
    store records this event; a recorder that does records a `Layout`.
    """

    at: Time
    topic: str
    successor: str


class Sweep(NamedTuple):
    """A sweep has finished without an error, so it has ended all transactions past their deadline. `now_ms`: the store's time when
    the sweep began. `who`: the name of the sweeper.
    """

    at: Time
    began: Time
    who: str
    now_ms: int


class Counts(NamedTuple):
    """How many records and files existed at one point of the run. `when`: that point, in words. `counts`: kind -> how many existed.
    `allowed`: kind -> how many may exist.
    """

    at: Time
    when: str
    counts: dict[str, int]
    allowed: dict[str, int]


class Fault(NamedTuple):
    """An injected fault: a kill, a cut connection, a jump of the clock. The checker ignores this event; reports draw it."""

    at: Time
    what: str


class Complaint(NamedTuple):
    """A violation that the recorder itself found. `invariant`: the number of the violated invariant; None: none of section 8."""

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
