"""One explicit transaction over any number of topics: `cluster.begin()` (protocol.md section 5)."""

from __future__ import annotations

import dataclasses
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema, conform
from ledgers.model import UNASSIGNED, Part
from ledgers.parts import PartWriter, close_all
from ledgers.schema import evolve
from metadata.client.client import Client
from metadata.client.providers import CoordinatorProvider, Providers
from metadata.common.errors import OptionError, OutcomeUnknown, TransactionUnfinished, TxnConflict, TxnSegmentError
from metadata.common.html import table
from metadata.common.tracing import note, traced
from metadata.records.folders import folder_of
from metadata.records.names import PersistentName, TopicName
from metadata.rules.acks import Ack, merged
from metadata.rules.transitions import Claim
from metadata.store.contract import time_ms
from metadata.topics.keys import key_of
from metadata.topics.routing import Router, targets
from metadata.topics.topics import Topic
from metadata.write.write_set import Committed, WriteSet
from txnsegment.batches import Batches, of_python, rows_given, typed, with_types
from txnsegment.schemas import from_arrow
from txnsegment.topics import no_segments


class UncommittedTransaction(UserWarning):
    """The `with` block of a `cluster.begin()` ended without `commit()` or `abort()`: its rows and acknowledgements are not
    committed.
    """


class TransactionAborted(TxnConflict):
    """The transaction was aborted. None of its rows is visible, also if the outcome of an earlier commit was unknown."""


Routed = Callable[[pa.RecordBatch], Iterable[tuple[str, pa.RecordBatch]]]
"""A function that assigns the rows of a batch to segments."""


@dataclass(frozen=True)
class Appended:
    """The staged parts of one append or write, by segment, and the columns and types of these parts."""

    topic: TopicName
    types: StructType
    key: str | None
    parts: tuple[tuple[str, Part], ...]
    grows: bool
    """Whether the topic may get new columns and wider types by these rows."""


class Transaction:
    """Rows for any number of topics, and acknowledgements, that are committed together or not at all. Made by `cluster.begin()`;
    for one thread.

        with cluster.begin() as txn:
            txn.append("orders", batch)
            txn.append("payments", table)
            txn.commit()

    `append` stages part files. Before `commit` the transaction is not registered, and no timeout runs. The end of the block
    does not commit. A block that ends without `commit` or `abort` drops the transaction and, unless it raised, warns
    (UncommittedTransaction). A sweep deletes the staged files once they are older than the orphan age.
    (`cluster.transaction()` differs: the end of its block commits.)
    """

    def __init__(self, client: Client, *, app: str | None, version: int | None, timeout_ms: int) -> None:
        self._client = client
        self._app, self._version, self._timeout_ms = app, version, timeout_ms
        self._id = client.coordinator.ids.next()
        self._attempt = client.cluster.unique()
        self._staged: list[Appended] = []
        self._acks: list[Ack] = []
        self._touched: dict[str, None] = {}
        """The topics and segments that the transaction writes or acknowledges. All have the same transaction model."""
        self._dropped: list[Callable[[bool], None]] = []
        self._staged_ms: int | None = None
        self._query: str | None = None
        """The id of the streaming query in whose `foreachBatch` the transaction runs; None if there is none or it is unknown."""
        self._tried = False
        self._unknown = False  # whether the outcome of a tried commit is unknown
        self._committed: Committed | None = None
        self._aborted = False

    @property
    def id(self) -> str:
        """The transaction's id, such as `0_977`.

        If the commit loses a race, it opens the transaction again under a new id. After the commit, `id` is the id that committed,
        as in `Committed.txn_id`. A transaction over marker-based topics gets its id (`1000000_12`) in the commit.
        """
        return self._id

    @property
    def counts(self) -> bool:
        """Whether this process knows that the transaction has committed. False also while the outcome is unknown."""
        return self._committed is not None and not self._committed.skipped

    @traced("append")
    def append(
        self,
        topic: str,
        batches: Batches,
        *,
        key: str | None = None,
        segments: int | None = None,
        auto_create: bool = True,
        merge_schema: bool = False,
    ) -> None:
        """Stage rows for a topic. If the topic does not exist, it is created with the columns of the rows, as by a write of Spark.
        It stays, empty, if the transaction does not commit.

        `batches`: Arrow batches, a table or a reader; an iterable of batches and tables; a DataFrame of pandas or Polars, a
        relation of DuckDB, or any other object with the Arrow C interface; or a list of dicts. A stream or iterable is read once,
        and never held in memory as a whole. Each call writes one part for each segment that its rows belong to, so prefer few large
        calls. Rows keep their order within each segment, over all calls.

        `key`: the column whose hash routes rows to segments, if the topic has no key yet (Spark: `keyColumn`). `segments`: the
        number of segments of a topic that this call creates; default: 1. `auto_create`: whether to create a topic that does not
        exist. `merge_schema`: whether the commit may add columns to the topic and widen its types, for good, as the option
        `mergeSchema` of a Spark write. A compatibility mode of the topic decides instead of it.

        If the call raises, none of its rows count, and the transaction can continue. Raises TopicNotFound (`auto_create` is False,
        or the topic is missing and an empty iterable shows no columns for it), SchemaError (`batches` is no table, or has a type
        that does not fit the topic or that a topic cannot keep), OptionError (the key column is missing, cannot be a key, or is not
        the topic's; or the topic's transaction model differs from that of earlier topics), StorageError, TxnConflict (the
        transaction has ended, or the outcome of a commit is unknown).
        """
        self._check_takes_more("append to")
        given = rows_given(batches)
        providers = Providers(self._client)
        name = providers.resolve(topic)
        self._check_takes(topic, name)
        self._check_kind([str(name)])
        if isinstance(name, PersistentName) and (key is not None or segments is not None):
            raise no_segments(name, f"It takes no {'key column' if key is not None else 'number of segments'}")
        if given.columns is None:
            now = self._client.topics.get(name)
        else:
            columns = from_arrow(typed(given.columns))
            now = providers.ensure(name, columns, segments=segments, key=key, create=auto_create)
        self._touched[str(name)] = None
        first = next(given.batches, None)
        if first is None:
            return
        known = self._schema_with_staged(name, self._client.topics.schema(now))
        kept = arrow_schema(known or StructType())

        def with_known_types(batch: pa.RecordBatch) -> pa.RecordBatch:
            return with_types(of_python(batch, kept) if given.python else batch, kept)

        first = with_known_types(first)
        incoming = from_arrow(first.schema)
        grown = evolve(known, incoming)
        if known is not None and not merge_schema:
            self._client.topics.schemas.check_growth(now, known, grown)
        self._client.topics.schemas.grown(now, incoming)  # refuses columns by the topic's compatibility mode
        registered = self._client.topics.schemas.codec(now)
        types = StructType([grown[field.name] for field in incoming])
        schema = arrow_schema(types)
        routed_by = key_of(now, key, schema)
        routed = self._router(now, routed_by, schema)
        if self._staged_ms is None:
            self._staged_ms = time_ms(self._client.cluster.store)

        def fitting() -> Iterator[pa.RecordBatch]:
            for batch in chain((first,), given.batches):
                fits = conform(with_known_types(batch), schema)
                if registered is not None:
                    registered.refuse_nulls(fits, str(name))
                yield fits

        parts = self._upload(fitting(), routed, schema, routed_by)
        self._check_takes_more("append to")  # the iterable of batches may have ended the transaction
        self._staged.append(Appended(name, types, routed_by, parts, merge_schema))
        note(topic=str(name), rows=sum(part.rows for _, part in parts), bytes=sum(part.bytes for _, part in parts))

    @traced("upload")
    def _upload(
        self,
        batches: Iterator[pa.RecordBatch],
        routed: Routed,
        schema: pa.Schema,
        routed_by: str | None,
    ) -> tuple[tuple[str, Part], ...]:
        """Write the rows into one part for each segment that gets rows, and return the parts by segment."""
        writers: dict[str, PartWriter] = {}
        try:
            for batch in batches:
                for segment, rows in routed(batch):
                    if segment not in writers:
                        writers[segment] = self._writer(segment, schema, routed_by)
                    writers[segment].write(rows)
            closed = zip(sorted(writers), close_all([writers[segment] for segment in sorted(writers)]), strict=True)
            return tuple((segment, part) for segment, part in closed if part is not None)
        except BaseException:
            for writer in writers.values():
                writer.discard()
            raise

    def acknowledge(self, acks: Iterable[Ack], *, dropped: Callable[[bool], None] | None = None) -> None:
        """Acknowledge rows with the commit, all or none. (`Consumer.ack` and `SparkTransaction.read` call this.)

        `dropped`: a function that is called with False if the transaction ends without a commit, and with True if its commit is
        skipped. The caller then delivers the rows again. Raises TxnConflict (the transaction has ended, or the outcome of a commit
        is unknown), AckConflict (this transaction acknowledges one of the rows already), OptionError (the topic's transaction model
        differs from that of earlier topics).
        """
        self._check_takes_more("acknowledge in")
        given = list(acks)
        self._check_kind(ack.segment for ack in given)
        self._acks = merged([*self._acks, *given])
        self._touched |= dict.fromkeys(ack.segment for ack in given)
        if dropped is not None and dropped not in self._dropped:
            self._dropped.append(dropped)

    def _schema_with_staged(self, name: TopicName, known: StructType | None) -> StructType | None:
        """Return the topic's schema with the columns that this transaction has staged. So if two appends do not fit each other, the
        second append raises, and not the commit.
        """
        for staged in self._all_staged():
            if staged.topic == name:
                known = evolve(known, staged.types)
        return known

    def _all_staged(self) -> list[Appended]:
        """Return what this process has appended so far."""
        return self._staged

    def _check_takes(self, given: str, name: TopicName) -> None:
        """Raise an error if the topic `name` takes no rows. `given`: the name that the program gave for this topic. Subclasses may
        override this method; here every topic takes rows.
        """

    def _check_kind(self, names: Iterable[str]) -> None:
        """Raise OptionError unless these names and the names in `_touched` all have the same transaction model."""
        Providers(self._client).of([*self._touched, *names])

    def _router(self, topic: Topic, key: str | None, schema: pa.Schema) -> Routed:
        """Return a function that assigns the rows of a batch to segments. A marker-based topic counts as one segment."""
        if isinstance(topic.name, PersistentName):
            return lambda rows: [(str(topic.name), rows)]
        start = int(self._id.partition("_")[2]) + len(self._staged)
        return Router(targets(topic), key, schema, start=start).route

    def _writer(self, segment: str, schema: pa.Schema, key: str | None) -> PartWriter:
        return PartWriter(
            self._client.cluster.storage,
            folder_of(segment),
            schema,
            UNASSIGNED,
            staging_id=self._attempt,
            name_source=self._client.cluster.unique,
            key=key,
            statistics=self._client.cluster.has_statistics,
        )

    def commit(self) -> Committed:
        """Make all appended rows visible, in all topics at once.

        Returns the log number of the registration, and the rows and bytes written. `skipped` is true if this version of the
        application had committed earlier. Then nothing is written or acknowledged, and consumers deliver the rows again.

        Another call returns the same result. If the call raises OutcomeUnknown, the outcome is unknown. After TransactionUnfinished
        the transaction is committed. After any other error of txnsegment nothing is committed. After each of these errors it is
        safe to call `commit` again, because rows are never written twice. Without an application the outcome of the first call is
        remembered for the header retention only (15 min by default). After that time `commit` always raises OutcomeUnknown.

        Raises SchemaError, SegmentSealed, VersionConflict, Fenced, SubscriptionNotFound, AckConflict (one of the rows is
        acknowledged already, or has a pending ack), TxnConflict (a topic got its key after the append), TransactionUnfinished (a
        marker-based topic that was sealed meanwhile does not show the rows), and the errors of store and storage.
        """
        if self._committed is not None:
            return self._committed
        self._check_open("commit")
        self._check_kind(str(staged.topic) for staged in self._staged)
        if self._app is None and not self._acks and not any(staged.parts for staged in self._staged):
            self._committed = Committed(None, None, 0, 0)  # no rows, no acks, and no version to remember
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
            # A TxnSegmentError of any other class says that nothing was committed. An exception of another kind (Ctrl-C) may come
            # at any moment, so the outcome is unknown.
            if isinstance(error, OutcomeUnknown | TransactionUnfinished) or not isinstance(error, TxnSegmentError):
                self._unknown = True
            raise
        self._committed = committed
        self._id = committed.txn_id or self._id
        if committed.skipped:
            # A transaction without an application is skipped only if an earlier commit() of this object has committed. Then its
            # acknowledgements are in effect, and no row is delivered again.
            self._give_back(skipped=self._app is not None)
        return committed

    def _coordinator(self) -> CoordinatorProvider:
        """Return the coordinator of the transaction's model. Raises OptionError if its topics have different models."""
        return Providers(self._client).coordinator((staged.topic for staged in self._staged), self._touched)

    @property
    def _application(self) -> str:
        return self._app if self._app is not None else f"txn-{self._attempt}"

    @property
    def claim(self) -> Claim:
        """The version that the transaction commits, and its attempt (protocol.md section 5)."""
        return Claim(1 if self._version is None else self._version, self._query, self._attempt, replays=False)

    def _parts(self) -> dict[str, list[Part]]:
        """Return the parts by segment, in the order of the appends, each with the id of the topic's current schema."""
        found: dict[str, list[Part]] = defaultdict(list)
        for staged in self._staged:
            if staged.parts:
                _, schema_id = Providers(self._client).evolve(staged.topic, staged.types, staged.key, grow=staged.grows)
                for segment, part in staged.parts:
                    found[segment].append(dataclasses.replace(part, schema=schema_id))
        return dict(found)

    def _keys(self) -> dict[str, str | None]:
        """Return the column by which each topic's rows were routed. Raises TxnConflict if the topic got its key between two
        appends.
        """
        found: dict[str, str | None] = {}
        for staged in self._staged:
            if staged.parts and found.setdefault(str(staged.topic), staged.key) != staged.key:
                raise TxnConflict(
                    f"Rows of {staged.topic} were routed without a key, then by {staged.key!r}: it was set between two appends.",
                    advice="Nothing was committed; begin a new transaction and append the rows again.",
                )
        return found

    @traced("abort")
    def abort(self) -> None:
        """Give the transaction up. If `commit` raised an error, this call aborts a header that is still OPEN. If the commit took
        effect in spite of its error, the rows stay, and this call raises nothing.

        Idempotent. Raises TxnConflict if `commit` returned without an error.
        """
        if self._committed is not None:
            raise TxnConflict(
                f"Transaction {self._id} has committed and cannot be aborted.",
                advice="Write rows that correct it: a commit is final.",
            )
        if self._tried and not self._aborted:
            self._coordinator().abort_attempt(self._application, "", self.claim)
        if not self._aborted:
            self._aborted = True
            self._give_back(skipped=False)
        self._staged.clear()
        self._acks.clear()

    def _give_back(self, *, skipped: bool) -> None:
        """Tell consumers to deliver again the rows that this transaction was to acknowledge."""
        for dropped in self._dropped:
            dropped(skipped)

    def _check_open(self, verb: str) -> None:
        if self._committed is not None or self._aborted:
            how = "committed" if self._committed is not None else "aborted"
            raise TxnConflict(f"One cannot {verb} transaction {self._id}: it was {how}.", advice="Begin a new one.")

    def _check_takes_more(self, verb: str) -> None:
        """Raise TxnConflict if the transaction has ended. Raise it also if an earlier commit may have succeeded, because rows and
        acknowledgements that are added now would be missing in that commit.
        """
        self._check_open(verb)
        if self._unknown:
            raise TxnConflict(
                f"One cannot {verb} transaction {self._id}: a commit of it was tried, and it is not known whether it succeeded.",
                advice="Call commit() again to find out; it commits the rows of that commit. Begin a new transaction for more.",
            )

    def _repr_html_(self) -> str:
        """The state and the rows of the transaction, for notebooks."""
        ended = "committed" if self.counts else "skipped" if self._committed is not None else "aborted" if self._aborted else None
        state = ended or ("a commit was tried, and its outcome is unknown" if self._unknown else "not committed")
        facts = [("transaction", self.id), ("state", state), ("application", self._app), ("version", self._version)]
        rows = [(str(staged.topic), sum(part.rows for _, part in staged.parts)) for staged in self._staged]
        return table((), facts) + (table(("topic", "rows"), rows) if rows else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._committed is None and not self._aborted:
            if kind is None and not self._tried and (self._staged or self._acks):  # if a commit was tried, its error was raised
                warnings.warn(self._left_out(), UncommittedTransaction, stacklevel=2)
            self.abort()

    def _left_out(self) -> str:
        found = [(staged.topic, sum(part.rows for _, part in staged.parts)) for staged in self._staged]
        topics = ", ".join(dict.fromkeys(str(topic) for topic, _ in found))
        rows = [f"{sum(rows for _, rows in found)} rows for {topics}"] if found else []
        acks = [f"acknowledgements in {len({ack.segment for ack in self._acks})} segments"] if self._acks else []
        return (
            f"The block of transaction {self._id} ended without commit(): {' and '.join(rows + acks)} do not count. Call "
            "txn.commit() at the end of the block, or txn.abort() to give the transaction up."
        )


def timeout_ms(given: timedelta | float | None, default_ms: int, most_ms: int) -> int:
    """Return a timeout in whole ms. `given`: a timedelta or a number of SECONDS. Raises OptionError, which names the unit. Guards
    against failure A12 (protocol.md section 9).
    """
    if given is None:
        return default_ms
    if isinstance(given, bool) or not isinstance(given, timedelta | int | float):
        raise OptionError(f"timeout={given!r} is not a duration.", advice="Give seconds as a number, or a timedelta.")
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if not 0.001 <= seconds <= most_ms / 1000:
        raise OptionError(
            f"timeout={given!r} is {seconds} seconds, which is not between 0.001 and this cluster's {most_ms / 1000}.",
            advice="Give seconds. The timeout counts from opening to deciding, not staging; the default is usually enough.",
        )
    return int(seconds * 1000)


def identity(app: str | None, version: int | None) -> tuple[str | None, int | None]:
    """Return `app` and `version` after a check: both are given or neither. Raises OptionError."""
    if version is not None and app is None:
        raise OptionError("version is given without app: a version counts for one application.", advice="Give both, or neither.")
    if app is None:
        return None, None
    if version is None:
        raise OptionError(
            "app is given without version: a second transaction would count as a repetition of the first.",
            advice="Give both (the version must rise), or neither.",
        )
    if not isinstance(app, str) or not app.strip() or len(app) > 512 or not app.isprintable():
        raise OptionError(f"app={app!r:.200} must be 1 to 512 printable characters.", advice="Give a name that stays the same.")
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**63:
        raise OptionError(f"version={version!r} is not a whole number from 0.", advice="Count up from 0.")
    return app, version
