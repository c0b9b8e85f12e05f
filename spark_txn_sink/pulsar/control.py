"""The rules of the control topic, which makes each version of an application commit at most once. Pure.

A control topic belongs to one application and one data topic. Its records are JSON, in the order of its one log. A plain record is
written outside of a transaction. There are four kinds of records:

    take        plain          a run takes over. A run is one start of a streaming query, or one batch write
    begin       plain          the run is about to commit this version by this transaction
    done        transactional  the version, committed together with the rows. It has the positions of the rows in each segment
    checkpoint  plain          the state after all records before it, so that a reader may begin with it

Only one producer may write to the topic: a new producer ends the previous producer (fencing). Three facts make a version commit
once:

- The `done` of a transaction is in the transaction, so rows and `done` become visible together.
- The `begin` of a transaction is in the log before its `done`. So a run that reads the log learns of every transaction that may
  still commit, and aborts it first.
- A run reads the log up to its own `take`. All plain records of earlier producers are before this `take`, since the run ends these
  producers before it writes the `take`. A `done` may be after it, because a broker writes a record of the transaction before it
  writes the `done`. But it is in the log before its transaction is committed. So if the run learns that a transaction is committed
  and has not read its `done`, it writes another `take` and reads up to this one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import LogDamaged
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.log_records import Outcome, decoded, encoded

T = TypeVar("T")
RUNS: Final = 64
"""How many runs the state remembers. A run that was replaced by as many later runs is forgotten, and then counts as a new run."""
CHECKPOINT_EVERY: Final = 100
"""After this many records the owner of the control topic writes a checkpoint."""


class TakenOver(TxnSegmentError):
    """Another driver of the same application has taken over."""


class VersionRefused(TxnSegmentError):
    """The version of a write does not follow the last committed version."""


@dataclass(frozen=True)
class Begin:
    """The record `begin`: a transaction that may be committed."""

    txn: TxnId
    version: int
    run: str


@dataclass(frozen=True)
class Done:
    """The record `done`: a committed version. `segments`: the first and the last position of its rows in each segment."""

    txn: TxnId
    version: int
    run: str
    topic: str
    segments: Mapping[str, tuple[Position, Position]]
    rows: int


@dataclass(frozen=True)
class Take:
    """The record `take`: a run takes over."""

    run: str


@dataclass(frozen=True)
class State:
    """The state of the control topic after some of its records. `runs`: the newest runs that took over, in their order. The last of
    them is the owner. `last`: the `done` of the highest committed version. `open`: the transactions with a `begin` and without a
    `done`. `records`: how many records followed the last checkpoint.
    """

    runs: tuple[str, ...] = ()
    last: Done | None = None
    open: Mapping[TxnId, Begin] = field(default_factory=dict)
    records: int = 0

    def replaced(self, run: str) -> bool:
        """Return whether a later run has taken over from this run."""
        return run in self.runs and self.runs[-1] != run


@dataclass(frozen=True)
class Checkpoint:
    """The record `checkpoint`: the state after all records before it."""

    state: State


Record = Take | Begin | Done | Checkpoint


def after(state: State, record: Record) -> State:
    """Return the state after one more record. Raises LogDamaged if two transactions have committed one version."""
    number = state.records + 1
    match record:
        case Checkpoint(found):
            # A checkpoint counts only if it is read first. A later one could lack a record of another producer.
            empty = not (state.runs or state.last or state.open)
            return dataclasses.replace(found if empty else state, records=0)
        case Take(run):
            # A run takes over once only. Otherwise a suspended driver would replace the run that has replaced its own.
            if run in state.runs:
                return dataclasses.replace(state, records=number)
            return dataclasses.replace(state, runs=(*state.runs, run)[-RUNS:], records=number)
        case Begin():
            return dataclasses.replace(state, open={**state.open, record.txn: record}, records=number)
        case Done():
            left = {txn: begin for txn, begin in state.open.items() if txn != record.txn}
            last = state.last
            if last is not None and last.version == record.version and last.txn != record.txn:
                raise LogDamaged(
                    f"Version {record.version} of {record.topic} was committed by the transactions {last.txn.text} and "
                    f"{record.txn.text}.",
                    advice="The rows of one of them are duplicates. Report this with the records of the control topic.",
                )
            newer = last is None or record.version >= last.version
            return dataclasses.replace(state, open=left, last=record if newer else last, records=number)


Decision = Literal["commit", "skip"]


class Recovery:
    """What the records say to a run that takes over. Fed by `resolving.replayed`. `own`: the transaction of this run, which is not
    aborted. A leftover is a transaction of an earlier run that may still commit. If a leftover is found to be committed, its abort
    came too late, and its `done` is in the log.
    """

    def __init__(self, run: str, own: TxnId) -> None:
        self._run, self._own = run, own
        self.state = State()
        self.committed: set[TxnId] = set()
        """The transactions whose `done` was read."""
        self._outcomes: dict[TxnId, Outcome | None] = {}

    @property
    def replaced(self) -> bool:
        """Whether a later run has taken over. If so, the caller reads no more records and aborts nothing."""
        return self.state.replaced(self._run)

    @property
    def missing(self) -> list[TxnId]:
        """The leftovers that were committed and whose `done` was not read."""
        return [txn for txn in self.state.open if self._outcomes.get(txn) == "committed"]

    def read(self, record: Record) -> None:
        """Take the next record. Raises LogDamaged."""
        self.state = after(self.state, record)
        if isinstance(record, Done):
            self.committed.add(record.txn)

    def leftovers(self) -> list[TxnId]:
        """Return the transactions of earlier runs that may still commit. The caller must abort each of them before it commits."""
        if self.replaced:
            return []
        return [txn for txn in self.state.open if txn != self._own]

    def ended(self, outcomes: Mapping[TxnId, Outcome | None]) -> None:
        """Take note of the outcomes of leftovers. None: the coordinator does not know the transaction any more. It then counts as
        aborted, since its `done` would have been read.
        """
        self._outcomes |= outcomes

    def finish(self) -> State:
        """Return the state without the leftovers. Raises LogDamaged if a leftover was committed and its `done` is missing."""
        if self.missing:
            raise LogDamaged(
                f"The transactions {', '.join(txn.text for txn in self.missing)} are committed, but the control topic has no "
                "record of it.",
                advice="Someone else has committed them. Check the rows of their versions before you go on.",
            )
        left = {txn: begin for txn, begin in self.state.open.items() if txn not in self._outcomes}
        self.state = dataclasses.replace(self.state, open=left)
        return self.state


@dataclass(frozen=True)
class Words:
    """What the caller of a write calls its application, its version and its timeout. Errors use these words."""

    app: str
    version: str
    timeout: str


OPTIONS: Final = Words("txnAppId", "txnVersion", "txnTimeoutMs")
"""The options of a Spark write."""
ARGUMENTS: Final = Words("app", "version", "timeout")
"""The arguments of `cluster.begin` and `cluster.transaction`."""


def decide(
    state: State,
    run: str,
    version: int,
    rows: int,
    *,
    what: str,
    streaming: bool,
    accepts_loss: bool,
    words: Words = OPTIONS,
) -> Decision:
    """Decide whether to commit a version or to skip it because it is committed. `rows`: how many rows the write has. `what`:
    application and topic, for errors.

    A micro-batch that a stream repeats has the rows of its first run. With another number of rows it is another micro-batch of the
    same version, planned from a checkpoint that is an old copy. If it were skipped, its rows would be lost. A batch or a
    transaction over several topics may have other rows when it is repeated (`txn.read` gives those that came since), so its rows
    are not compared.

    Raises TakenOver, VersionRefused.
    """
    if state.replaced(run):
        only = "Let only one query run on a checkpoint" if streaming else f"Let only one program at a time use an {words.app}"
        raise TakenOver(
            f"Another driver of {what} has taken over: this one may not commit version {version}.",
            advice=f"{only}. Stop the one that is not wanted; the other goes on. Nothing of this version was committed by this "
            "driver.",
        )
    last = state.last
    if last is None or version == last.version + 1:
        return "commit"
    if version == last.version:
        if streaming and rows != last.rows and not accepts_loss:
            raise VersionRefused(
                f"Version {version} of {what} is committed with {last.rows} rows, and this micro-batch of the same version has "
                f"{rows}.",
                advice="Is the checkpoint an old copy? Then rows that came since would be lost: start with a new checkpoint and a "
                "new txnAppId, from the rows that are not written yet. If the query itself is not deterministic (rand, a table "
                "that changes), give the option afterRestore=continue for one start: the micro-batch is then skipped.",
            )
        return "skip"
    if version < last.version:
        raise VersionRefused(
            f"Version {version} of {what} is below the committed version {last.version}.",
            advice="Is the checkpoint an old copy? Start with a new checkpoint and a new txnAppId."
            if streaming
            else f"Give a {words.version} above {last.version}, or another {words.app}.",
        )
    if streaming and not accepts_loss:
        raise VersionRefused(
            f"Version {version} of {what} does not follow the committed version {last.version}: batches between them are missing.",
            advice="Were batches written elsewhere, or was the cluster restored from a backup? To accept the loss give the option "
            "afterRestore=continue for one start.",
        )
    return "commit"


# --- bytes ---


def encode(record: Record) -> bytes:
    """Return the JSON text of a record."""
    return encoded(_fields(record))


def _fields(record: Record) -> dict[str, object]:
    match record:
        case Take(run):
            return {"kind": "take", "run": run}
        case Begin(txn, version, run):
            return {"kind": "begin", "txn": txn.text, "version": version, "run": run}
        case Done(txn, version, run, topic, segments, rows):
            places = {name: [first.text, last.text] for name, (first, last) in segments.items()}
            head = {"kind": "done", "txn": txn.text, "version": version, "run": run}
            return {**head, "topic": topic, "segments": places, "rows": rows}
        case Checkpoint(state):
            last = None if state.last is None else _fields(state.last)
            begun = [_fields(one) for one in state.open.values()]
            return {"kind": "checkpoint", "runs": [*state.runs], "last": last, "open": begun}


def decode(data: bytes) -> Record:
    """Return a record from its JSON text. Raises LogDamaged."""
    return decoded(data, _record)


def _record(fields: Mapping[str, object]) -> Record:
    get = fields.__getitem__
    match get("kind"):
        case "take":
            return Take(str(get("run")))
        case "begin":
            return Begin(TxnId.parse(str(get("txn"))), int(str(get("version"))), str(get("run")))
        case "done":
            segments = _of(dict, get("segments"))
            places = {name: (Position.parse(first), Position.parse(last)) for name, (first, last) in segments.items()}
            txn, version, run = TxnId.parse(str(get("txn"))), int(str(get("version"))), str(get("run"))
            return Done(txn, version, run, str(get("topic")), places, int(str(get("rows"))))
        case "checkpoint":
            last = get("last")
            done = None if last is None else _of(Done, _record(_of(dict, last)))
            opened = [_of(Begin, _record(_of(dict, one))) for one in _of(list, get("open"))]
            runs = tuple(str(run) for run in _of(list, get("runs")))
            return Checkpoint(State(runs, done, {one.txn: one for one in opened}))
        case other:
            raise ValueError(f"unknown kind {other!r}")


def _of(kind: type[T], value: object) -> T:
    """Return the value if it has the type `kind`. Otherwise raise TypeError."""
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.100} is no {kind.__name__}")
    return value
