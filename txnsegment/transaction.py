"""One explicit transaction over any number of topics: `cluster.begin()` (protocol.md section 5)."""

from __future__ import annotations

import dataclasses
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema, conform
from ledgers.model import UNASSIGNED, Part
from ledgers.parts import PartWriter
from ledgers.schema import evolve
from metadata.client.client import Client
from metadata.client.providers import CoordinatorProvider, Providers
from metadata.common.errors import OptionError, OutcomeUnknown, SchemaError, TransactionUnfinished, TxnConflict, TxnSegmentError
from metadata.records.folders import folder_of
from metadata.records.names import PersistentName, TopicName
from metadata.records.persistent_records import Model
from metadata.rules.acks import Ack, merged
from metadata.rules.transitions import Claim
from metadata.store.contract import time_ms
from metadata.topics.routing import Router, targets
from metadata.topics.topics import Topic
from metadata.write.write_set import Committed, WriteSet
from txnsegment.schemas import from_arrow

Batches: TypeAlias = "pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch | pa.Table]"


class UncommittedTransaction(UserWarning):
    """The `with` block of a `cluster.begin()` ended without `commit()` or `abort()`: what was appended and acknowledged in it does
    not count.
    """


@dataclass(frozen=True)
class Appended:
    """What one append or write left: parts by segment, and the columns and types that they hold."""

    topic: TopicName
    types: StructType
    key: str | None
    parts: tuple[tuple[str, Part], ...]


class Transaction:
    """Rows for any number of topics that become visible together or not at all. Made by `cluster.begin()`; for one thread.

        with cluster.begin() as txn:
            txn.append("orders", batch)
            txn.append("payments", table)
            txn.commit()

    Appending stages part files; nothing is registered and no timeout runs before `commit`. Leaving the block does not commit: it
    forgets the transaction, and warns (UncommittedTransaction) unless an error or `abort()` ended it. Its files are swept once they
    are older than the orphan age. (The block of `cluster.transaction()` commits at its end.)
    """

    def __init__(self, client: Client, *, app: str | None, version: int | None, timeout_ms: int) -> None:
        self._client = client
        self._app, self._version, self._timeout_ms = app, version, timeout_ms
        self._id = client.coordinator.ids.next()
        self._attempt = client.cluster.unique()
        self._staged: list[Appended] = []
        self._acks: list[Ack] = []
        self._touched: dict[str, None] = {}
        """Topics and segments that it has to do with, rows or none: they are all of one kind."""
        self._dropped: list[Callable[[bool], None]] = []
        self._staged_ms: int | None = None
        self._query: str | None = None
        """The streaming query in whose `foreachBatch` it writes or acknowledges, where that is known."""
        self._tried = False
        self._unknown = False  # whether a commit was tried whose outcome nobody could tell
        self._committed: Committed | None = None
        self._aborted = False

    @property
    def id(self) -> str:
        """The transaction's id, `0_977`. A commit that had to open again (after a lost race) goes under another one: then this is
        the one that committed, as in `Committed.txn_id`. Over `persistent://` topics it gets its id, `1000000_12`, in the commit.
        """
        return self._id

    @property
    def counts(self) -> bool:
        """Whether it has committed: this process knows that what it wrote and acknowledged counts (False: it may still)."""
        return self._committed is not None and not self._committed.skipped

    def append(self, topic: str, batches: Batches) -> None:
        """Stage rows for a topic, which must exist: a RecordBatch, a Table, or anything that yields them (read once, and never
        held as a whole). One call leaves one part for each segment it touches, so few calls with much are better than many with
        little. Order is kept within each segment, over all calls.

        If it raises, nothing of this call counts, and the transaction can go on. Raises TopicNotFound, SchemaError (a type that
        does not fit the topic), OptionError (the topic's key column is missing or no key; a topic of the other kind than those
        before), StorageError, TxnConflict (ended, or a commit was tried whose outcome is not known).
        """
        self._check_takes_more("append to")
        found = batches_of(batches)
        first = next(found, None)
        name = Providers(self._client).resolve(topic)
        self._check_takes(topic, name)
        self._check_kind([str(name)])
        now = self._client.topics.get(name)
        self._touched[str(name)] = None
        if first is None:
            return
        incoming = from_arrow(first.schema)
        grown = evolve(self._schema_with_staged(name, self._client.topics.schema(now)), incoming)
        self._client.topics.schemas.grown(now, incoming)  # what the topic's compatibility mode says to it
        registered = self._client.topics.schemas.codec(now)
        types = StructType([grown[field.name] for field in incoming])
        schema = arrow_schema(types)
        routed = self._router(now, schema)
        if self._staged_ms is None:
            self._staged_ms = time_ms(self._client.cluster.store)
        writers: dict[str, PartWriter] = {}
        try:
            for batch in _then(first, found):
                fitting = conform(batch, schema)
                if registered is not None:
                    registered.refuse_nulls(fitting, str(name))
                for segment, rows in routed(fitting):
                    if segment not in writers:
                        writers[segment] = self._writer(segment, schema)
                    writers[segment].write(rows)
            closed = [(segment, writer.close()) for segment, writer in sorted(writers.items())]
        except BaseException:
            for writer in writers.values():
                writer.discard()
            raise
        self._check_takes_more("append to")  # what gives the batches may have ended it meanwhile
        self._staged.append(Appended(name, types, now.layout.key, tuple((s, part) for s, part in closed if part is not None)))

    def acknowledge(self, acks: Iterable[Ack], *, dropped: Callable[[bool], None] | None = None) -> None:
        """Acknowledge with the commit, all of it or nothing (`Consumer.ack` and what reads a subscription call this).

        `dropped` is called when the transaction ends without a commit (False), or its commit is skipped (True): then what was
        acknowledged is to be delivered again.
        Raises TxnConflict (ended, or a commit was tried whose outcome is not known), AckConflict (rows that this transaction
        acknowledges already), OptionError (topics of the other kind than those before).
        """
        self._check_takes_more("acknowledge in")
        given = list(acks)
        self._check_kind(ack.segment for ack in given)
        self._acks = merged([*self._acks, *given])
        self._touched |= dict.fromkeys(ack.segment for ack in given)
        if dropped is not None and dropped not in self._dropped:
            self._dropped.append(dropped)

    def _schema_with_staged(self, name: TopicName, known: StructType | None) -> StructType | None:
        """The topic's schema as it will be after what this transaction has staged already, so that two appends that do not fit
        each other are found at the second one and not at the commit."""
        for staged in self._staged:
            if staged.topic == name:
                known = evolve(known, staged.types)
        return known

    def _check_takes(self, given: str, name: TopicName) -> None:
        """Of a topic that was just given, and the one that it stands for: raises an error if this takes no rows for it. A
        transaction takes them for all.
        """

    def _check_kind(self, names: Iterable[str]) -> None:
        """Raises OptionError if they are not of the kind that it has to do with already: one transaction never spans both."""
        Providers(self._client).of([*self._touched, *names])

    def _router(self, topic: Topic, schema: pa.Schema) -> Callable[[pa.RecordBatch], Iterable[tuple[str, pa.RecordBatch]]]:
        """Which rows of a batch go to which segment; all of them to a persistent topic, which is its own segment."""
        if isinstance(topic.name, PersistentName):
            return lambda rows: [(str(topic.name), rows)]
        start = int(self._id.partition("_")[2]) + len(self._staged)
        return Router(targets(topic), topic.layout.key, schema, start=start).route

    def _writer(self, segment: str, schema: pa.Schema) -> PartWriter:
        return PartWriter(
            self._client.cluster.storage,
            folder_of(segment),
            schema,
            UNASSIGNED,
            staging_id=self._attempt,
            name_source=self._client.cluster.unique,
        )

    def commit(self) -> Committed:
        """Make everything that was appended visible, in all topics at once. Returns the number of its registration, rows, bytes;
        `skipped` says that this version of the application had committed earlier (then nothing was written or acknowledged, and
        consumers deliver again what was to be acknowledged).

        Committing again returns the same. After an error nothing counts, or (OutcomeUnknown) it is not known. Calling `commit`
        again is safe either way: it never doubles rows. But without an application what became of the first try is remembered for
        the header retention only (15 min by default); after that it raises OutcomeUnknown for ever. Raises SchemaError,
        SegmentSealed, VersionConflict, Fenced, AckConflict (somebody else has, or claims, what it acknowledges),
        SubscriptionNotFound, TxnConflict (a topic got its key since the rows were appended), TransactionUnfinished (it IS
        committed, but a persistent topic that was sealed meanwhile does not show its rows), and what store and storage raise.
        """
        if self._committed is not None:
            return self._committed
        self._check_open("commit")
        self._check_kind(str(staged.topic) for staged in self._staged)
        if self._app is None and not self._acks and not any(staged.parts for staged in self._staged):
            self._committed = Committed(None, None, 0, 0)  # no rows, and no version to remember: nothing for anybody to see
            return self._committed
        parts = self._parts()
        staged_ms = time_ms(self._client.cluster.store) if self._staged_ms is None else self._staged_ms
        again, self._tried = self._tried, True
        work = WriteSet(
            app=self._application,
            app_topic="",
            claim=self.claim,
            parts=parts,
            staged_ms=staged_ms,
            timeout_ms=self._timeout_ms,
            random=self._app is None,
            txn_id=None if again else self._id,
            keys=self._keys(),
            retried=self._unknown,
            acks=tuple(self._acks),
        )
        try:
            committed = self._coordinator().commit(work)
        except BaseException as error:
            # Any other error of ours says that nothing was committed; one that is not ours (Ctrl-C) may come at any moment.
            if isinstance(error, OutcomeUnknown | TransactionUnfinished) or not isinstance(error, TxnSegmentError):
                self._unknown = True
            raise
        self._committed = committed
        self._id = committed.txn_id or self._id
        if committed.skipped:
            # Without an application only an earlier commit() of this transaction can have been first: its acknowledgements count.
            self._give_back(skipped=self._app is not None)
        return committed

    def _coordinator(self) -> CoordinatorProvider:
        """Raises OptionError. What was staged for a persistent topic goes by way of its own, also if that was migrated since."""
        providers = Providers(self._client)
        older = any(isinstance(staged.topic, PersistentName) for staged in self._staged)
        return providers.by_model(Model.IN_STREAM if older else providers.model(self._names())).coordinator

    def _names(self) -> list[str]:
        """Of all topics and segments that it has to do with."""
        return [*self._touched, *(str(staged.topic) for staged in self._staged)]

    @property
    def _application(self) -> str:
        return self._app if self._app is not None else f"txn-{self._attempt}"

    @property
    def claim(self) -> Claim:
        """The version that it commits, and the attempt that it is (protocol.md section 5)."""
        return Claim(1 if self._version is None else self._version, self._query, self._attempt, replays=False)

    def _parts(self) -> dict[str, list[Part]]:
        """The parts by segment, in the order of the appends, each with the id of the schema that the topic has for it now."""
        found: dict[str, list[Part]] = defaultdict(list)
        for staged in self._staged:
            if staged.parts:
                _, schema_id = Providers(self._client).evolve(staged.topic, staged.types, staged.key)
                for segment, part in staged.parts:
                    found[segment].append(dataclasses.replace(part, schema=schema_id))
        return dict(found)

    def _keys(self) -> dict[str, str | None]:
        """The column that each topic's rows were routed by. Raises TxnConflict if the topic got its key between two appends."""
        found: dict[str, str | None] = {}
        for staged in self._staged:
            if staged.parts and found.setdefault(str(staged.topic), staged.key) != staged.key:
                raise TxnConflict(
                    f"Rows of {staged.topic} were routed without a key, then by {staged.key!r}: it was set between two appends.",
                    advice="Nothing was committed; begin a new transaction and append the rows again.",
                )
        return found

    def abort(self) -> None:
        """Give the transaction up. Before a commit was tried nothing was opened, so it is only forgotten; after one that raised,
        what that attempt left OPEN is ended (should it have committed unknown to us, it stays committed).

        Idempotent. Raises TxnConflict after a commit that succeeded.
        """
        if self._committed is not None:
            raise TxnConflict(f"Transaction {self._id} has committed.", advice="A commit is final; write what corrects it.")
        if self._tried and not self._aborted:
            self._coordinator().abort_attempt(self._application, "", self.claim)
        if not self._aborted:
            self._aborted = True
            self._give_back(skipped=False)
        self._staged.clear()
        self._acks.clear()

    def _give_back(self, *, skipped: bool) -> None:
        """What it was to acknowledge is to be delivered again: its acknowledgements do not count."""
        for dropped in self._dropped:
            dropped(skipped)

    def _check_open(self, verb: str) -> None:
        if self._committed is not None or self._aborted:
            how = "committed" if self._committed is not None else "aborted"
            raise TxnConflict(f"One cannot {verb} transaction {self._id}: it was {how}.", advice="Begin a new one.")

    def _check_takes_more(self, verb: str) -> None:
        """Raises TxnConflict if it has ended, or if it may have committed: what came to it then would not be in that commit."""
        self._check_open(verb)
        if self._unknown:
            raise TxnConflict(
                f"One cannot {verb} transaction {self._id}: a commit of it was tried, and it is not known whether it succeeded.",
                advice="commit() again tells, and commits what was there before. Begin a new transaction for what comes now.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._committed is None and not self._aborted:
            if kind is None and not self._tried and (self._staged or self._acks):  # a commit that was tried has raised
                warnings.warn(self._left_out(), UncommittedTransaction, stacklevel=2)
            self.abort()

    def _left_out(self) -> str:
        found = [(staged.topic, sum(part.rows for _, part in staged.parts)) for staged in self._staged]
        topics = ", ".join(dict.fromkeys(str(topic) for topic, _ in found))
        rows = [f"{sum(rows for _, rows in found)} rows for {topics}"] if found else []
        acks = [f"acknowledgements in {len({ack.segment for ack in self._acks})} segments"] if self._acks else []
        return (
            f"The block of transaction {self._id} ended without commit(): {' and '.join(rows + acks)} do not count. Call "
            "txn.commit() at its end, or txn.abort() to give the transaction up on purpose."
        )


def timeout_ms(given: timedelta | float | None, default_ms: int, most_ms: int) -> int:
    """A timeout in whole ms from a timedelta or a number of SECONDS. Raises OptionError that says the unit (A12)."""
    if given is None:
        return default_ms
    if isinstance(given, bool) or not isinstance(given, timedelta | int | float):
        raise OptionError(f"timeout={given!r} is not a duration.", advice="Give seconds as a number, or a timedelta.")
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if not 0.001 <= seconds <= most_ms / 1000:
        raise OptionError(
            f"timeout={given!r} is {seconds} seconds, which is not between 0.001 and this cluster's {most_ms / 1000}.",
            advice="It is in seconds, and counts from opening to deciding: the default is enough for nearly everybody.",
        )
    return int(seconds * 1000)


def identity(app: str | None, version: int | None) -> tuple[str | None, int | None]:
    """`app` and `version` checked: both or neither. Raises OptionError."""
    if version is not None and app is None:
        raise OptionError("version is given without app: a version counts for one application.", advice="Give both, or neither.")
    if app is None:
        return None, None
    if version is None:
        raise OptionError(
            "app is given without version: a second transaction would be taken for a repetition of the first.",
            advice="Give both (the version must rise), or neither.",
        )
    if not isinstance(app, str) or not app.strip() or len(app) > 512 or not app.isprintable():
        raise OptionError(f"app={app!r:.200} must be 1 to 512 printable characters.", advice="Give a name that stays the same.")
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**63:
        raise OptionError(f"version={version!r} is not a whole number from 0.", advice="Count up from 0.")
    return app, version


def batches_of(given: Batches) -> Iterator[pa.RecordBatch]:
    """Batches with rows, one by one."""
    if isinstance(given, pa.RecordBatch):
        if given.num_rows:
            yield given
    elif isinstance(given, pa.Table):
        yield from (batch for batch in given.to_batches() if batch.num_rows)
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | dict):
        for one in given:
            if not isinstance(one, pa.RecordBatch | pa.Table):
                raise _no_batches(one)
            yield from batches_of(one)
    else:
        raise _no_batches(given)


def _no_batches(given: object) -> SchemaError:
    return SchemaError(
        f"append() takes Arrow batches, not {type(given).__name__}.",
        advice="Give a pyarrow RecordBatch, a Table, or an iterable of them (pyarrow.Table.from_pylist, Table.from_pandas).",
    )


def _then(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
