"""`PulsarTransaction`: rows for several topics of a Pulsar cluster, and acknowledgements, committed together."""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import TracebackType
from typing import Self

import pyarrow as pa

from metadata.common.errors import OptionError, OutcomeUnknown, TopicSealed, TxnConflict
from metadata.common.html import table
from metadata.records.names import topic_name
from metadata.write.write_set import Committed
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import TRANSACTION_NOT_FOUND, ConnectionLost, PulsarError, TimedOut, TopicTerminated, TransactionEnded
from pulsar_protocol.layout import Bits, Layout, Position
from pulsar_protocol.producers import lend
from pulsar_protocol.values import Values
from spark_txn_sink.pulsar.admin import when_created
from spark_txn_sink.pulsar.attempts import Opened, make_log
from spark_txn_sink.pulsar.ends import NotCommitted
from spark_txn_sink.pulsar.journal import merged
from spark_txn_sink.pulsar.log_records import Outcome
from spark_txn_sink.pulsar.many_topics import Application, Topic, record_places, settle_all
from spark_txn_sink.pulsar.routing import Router
from spark_txn_sink.pulsar.sending import Outgoing, finish, follow
from txnsegment.batches import Batches, of_python, rows_given
from txnsegment.pulsar.appended import layout_for, messages, registered, values_of
from txnsegment.pulsar.ending import Participant, Participants, VersionEnd, commit_asked, ended_early
from txnsegment.transaction import TransactionAborted, UncommittedTransaction

ENTRY_ROWS = 1_000
"""How many rows an entry has at most."""
ENTRY_BYTES = 512 * 1024
"""The size in bytes of an entry's values and keys at which the entry is sent."""
NO_APPLICATION = Application()


class PulsarTransaction:
    """One transaction of a Pulsar cluster. Made by `cluster.begin()`; for one thread.

        with cluster.begin() as txn:
            txn.append("orders", table, key="customer")
            txn.append("payments", other)
            consumer.ack(message, txn=txn)
            txn.commit()

    `append` sends the rows at once, and nobody reads them before the commit. The first `append` to a topic creates the topic's
    writers' log, in which the commit records where the rows are. If `append` raises after that, the transaction is aborted. Before
    that it has sent nothing, and the transaction stays open. The end of the block aborts a transaction that is not committed, and
    warns (UncommittedTransaction) if it has rows or acknowledgements and the block has not raised. If it is still open after its
    timeout, the broker aborts it.
    """

    def __init__(
        self,
        client: PulsarClient,
        timeout_ms: int,
        bits: Callable[[], Bits],
        application: Application = NO_APPLICATION,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`bits`: a function that returns which bits of a key's hash choose its segment, by the version of the broker.
        `application`: the application and version that make the transaction idempotent. `now`: a monotonic clock in seconds.
        """
        self._client, self._timeout_ms, self._bits, self._application = client, timeout_ms, bits, application
        self._now = now
        self._id: TxnId | None = None
        self._since = now()
        """When the transaction was begun, or a moment before."""
        self._guard = threading.RLock()
        """Held while the transaction begins, takes a participant, or begins to end."""
        self._opened: Opened | None = None
        """The record of the opening in the journal; None: there is none yet."""
        self._places: dict[str, dict[str, tuple[Position, Position]]] = {}
        """For each topic and segment, the first and last position of the rows."""
        self._rows = self._bytes = self._turn = self._appending = 0
        self._committed: Committed | None = None
        self._ended = False
        self._committing = False
        """Whether the commit has begun. The transaction then takes nothing more."""
        self._outcome: Outcome | None = None
        """How the transaction has ended; None: it has not, or that is not known."""
        self._failed: BaseException | None = None
        """The first error after which the transaction was aborted."""
        self._commit_sent = self._forgotten = False
        """Whether a commit may have been sent: `commit` or `abort` learns its outcome. Whether the broker has forgotten it."""
        self._participants = Participants(self, client.url)

    @property
    def id(self) -> str | None:
        """The id of the transaction, as the broker shows it. None: nothing was appended yet."""
        return None if self._id is None else self._id.text

    def append(
        self, topic: str, batches: Batches, *, key: str | None = None, segments: int | None = None, auto_create: bool = True
    ) -> None:
        """Send rows to a topic, within this transaction. The rows are encoded by the topic's schema, and must have all its
        columns. Integers may have a wider type if they fit. A topic without a schema gets the schema of the first rows, as by a
        write of Spark. A topic that does not exist is created by Pulsar's REST interface, as by a write of Spark, and stays.

        `batches`: as in `Transaction.append`. `segments`: the number of segments of a topic that this call creates; default: 1.
        `auto_create`: whether to create a topic that does not exist.

        `key`: the column with the keys of the messages (text, bytes or integers). The key of a row decides its segment, and rows of
        a key keep their order. The column stays in the rows. None: the messages have no keys, unless the topic's schema has keys
        (KEY_VALUE). Messages without keys, and rows with a null key, go to the segments in turn, an entry at a time.

        A row that is larger than the broker's `maxMessageSize` is sent in chunks. If a segment is split or merged meanwhile, the
        remaining rows go to its children.

        Raises TopicMissing (`auto_create` is False, there is no batch that shows the columns, or no REST interface is known to
        create the topic or its writers' log), SchemaError, SchemaRefused (by the broker), MessageTooLarge (a row above 256 MB),
        UnknownVersion (there are keys, and the routing of the broker's version is not known), TopicSealed (a segment was split or
        merged, and it is unknown whether it has the last entry that was sent to it: run the transaction again), TxnConflict (timed
        out), OptionError (the transaction has ended, or the schema has the keys in its rows and `key` is given).
        """
        self._check_takes("append")
        name = str(topic_name(topic))
        given = rows_given(batches)
        if given.columns is None:
            layout = self._client.layout(name)
        else:
            admin_url = self._application.admin_url if auto_create else None
            layout = layout_for(self._client, name, given.columns, key, segments, admin_url)
        values = when_created(lambda: values_of(self._client, name))
        make_log(self._client, name, self._application.admin_url)
        self._appending += 1
        try:
            if (first := next(given.batches, None)) is not None:
                values = registered(self._client, layout, first.schema, key) if values is None else values
                rows = chain((first,), given.batches)
                self._send(layout, values, (of_python(one, values.columns) for one in rows) if given.python else rows, key)
        except BaseException as error:
            self._abort_after(error)
            if isinstance(error, TopicTerminated | ConnectionLost) and self._changed(layout):
                raise TopicSealed(
                    f"A segment of {name} was split or merged while rows were sent: {error.message}",
                    advice="Nothing of the transaction is visible. Run it again; it then writes to the new segments.",
                ) from error
            if isinstance(error, TransactionEnded):
                raise self._ended_early(error) from error
            raise
        finally:
            self._appending -= 1

    def _begin_once(self) -> TxnId:
        """Return the id of the transaction. Begin it at the first call. Raises the errors of the broker, and OptionError if this
        object has ended.
        """
        with self._guard:
            if self._id is None:
                self._check_open("begin")
                self._since = self._now()
                self._id = self._client.begin(self._timeout_ms)
                if self._has_journal:
                    try:
                        self._opened = self._application.open(self._client, self._id, uuid.uuid4().hex)
                    except BaseException as error:
                        self._abort_after(error)
                        raise
            return self._id

    @property
    def _has_journal(self) -> bool:
        return self._application.name is not None

    def _changed(self, layout: Layout) -> bool:
        """Return whether the topic has another layout now. This may explain an error, because a broker that seals a segment closes
        the producers of the segment.
        """
        try:
            return self._client.layout(layout.topic).epoch != layout.epoch
        except PulsarError:
            return False  # the caller raises the first error

    def _send(self, layout: Layout, values: Values, batches: Iterable[pa.RecordBatch], key: str | None) -> None:
        """Send rows as the tasks of Spark do (`spark_txn_sink.pulsar.sending`)."""
        bits: Bits = self._bits() if key is not None or values.takes_keys else "high"  # rows without keys need neither
        router: Router | None = None
        outgoing: Outgoing | None = None
        name = layout.topic

        def newest() -> Layout:
            return self._client.layout(name)

        try:
            for batch in batches:
                for start in range(0, batch.num_rows, ENTRY_ROWS):
                    part = batch.slice(start, ENTRY_ROWS)
                    rows = messages(part, values, key, name)
                    self._bytes += sum(len(value or b"") for value in rows.values)
                    if router is None or outgoing is None:
                        txn = self._begin_once()
                        # The transactions begin at different segments, so that small ones fill all segments.
                        router = Router(layout, bits, ENTRY_BYTES, ENTRY_ROWS, txn.least + self._turn)
                        outgoing = Outgoing(lambda one: lend(self._client, one, values.schema), txn, "none", name)
                        self._turn += 1
                    router.route(rows)
                    for segment, entry in router.full():
                        outgoing.send(segment, entry)
                        if outgoing.refused:
                            follow(router, outgoing, newest)
            if router is not None and outgoing is not None:
                sent = finish(router, outgoing, newest)
                self._places = merged([*self._places.items(), (name, sent)])
                self._rows += router.rows
        finally:
            if outgoing is not None:
                outgoing.close()

    def join(self, participant: Participant) -> None:
        """Let a consumer take part, whose acknowledgements count with the commit. `consumer.ack(.., txn=..)` calls this. If this
        method raises, the transaction is aborted, because the consumer's log may have a record of it. Raises OptionError after the
        end, or after a commit was sent, or for a consumer of another cluster; then the transaction stays open.
        """
        with self._guard:  # so that a participant is told the outcome, although another thread ends the transaction
            self._check_takes("take acknowledgements")
            self._participants.check_cluster(participant)
            try:
                self._participants.join(participant, self._begin_once)
            except BaseException as error:
                self._abort_after(error)
                raise

    def commit(self) -> Committed:
        """Make all rows visible, and let all acknowledgements count. A second call returns the result of the first.

        Raises TxnConflict if the transaction has timed out, or if the connection was lost or an earlier call was interrupted
        before the commit was sent. Raises TakenOver if another consumer has taken over the subscription of an acknowledgement.
        Then nothing is visible. Raises OutcomeUnknown if the connection was lost after the commit was sent. Then call `commit`
        again, which learns the outcome unless the broker has forgotten it. With an application it also raises VersionConflict for
        a version below the last committed one, and Fenced if another program of the application has taken over. Then nothing is
        visible.
        """
        if self._committed is None and self._outcome == "committed":  # `abort` has learned this
            self._committed = Committed(self.id, None, self._rows, self._bytes)
        if self._committed is not None:
            return self._committed
        if self._committing and self._outcome == "aborted":
            why = "" if self._failed is None else f", because an earlier commit of it failed: {self._failed!r}"
            raise TransactionAborted(
                f"The Pulsar transaction {self.id} was aborted{why}.", advice="Nothing of it is visible. Run it again."
            )
        if not self._forgotten:
            self._check_open("commit")
        if self._appending:
            raise OptionError(
                f"The transaction {self.id or ''} cannot commit while append runs.",
                advice="Commit after append has returned. The rows given to append, and other threads, must not call commit.",
            )
        if self._application.name is not None:
            self._begin_once()  # a transaction without rows commits its version, too
        with self._guard:
            txn = self._id
            self._ended = txn is None  # nothing can begin the transaction any more
            self._committing = True
        found = True
        if txn is not None and self._commit_sent:
            self._ask_commit(txn, again=True)
        elif txn is not None:
            found = self._end(txn)
        self._committed = Committed(self.id, None, self._rows, self._bytes) if found else Committed(None, None, 0, 0, skipped=True)
        try:
            self._finish("committed" if found else "aborted")
        except BaseException as error:  # such as an interrupt of the user
            if found:
                error.add_note(self._visible())
            raise
        return self._committed

    def _end(self, txn: TxnId) -> bool:
        """Commit for the first time. Return False if the version was committed before."""
        recorded: dict[str, Opened] = {}
        try:
            topics = self._topics()
            if self._application.name is not None:
                if not self._end_version(topics, recorded):
                    return False
            else:
                self._participants.prepare(txn)
                recorded |= record_places(self._client, txn, topics, self._application.admin_url)
        except OutcomeUnknown:
            raise
        except BaseException as error:
            self._abort_after(error)
            if isinstance(error, ConnectionLost | TimedOut):
                raise TxnConflict(
                    f"The Pulsar transaction {txn.text} was not committed, because the broker was lost before: {error.message}",
                    advice="Nothing of it is visible, and it ends at the latest by its timeout. Run it again.",
                ) from error
            if isinstance(error, TransactionEnded):
                raise self._ended_early(error) from error
            raise
        if self._application.name is None:
            self._ask_commit(txn)
        settle_all(self._client, topics, recorded)
        return True

    def _check_repetition(self) -> None:
        """Raise VersionConflict if this transaction, whose version was committed before, is no repetition of the committed one."""

    def _end_version(self, topics: Sequence[Topic], recorded: dict[str, Opened]) -> bool:
        """Commit a version of the application. Return False if it was committed before. `recorded`: gets the records of where the
        rows are. The version is decided first, before consumers write acknowledgements.
        """
        assert self._opened is not None
        txn = self._opened.txn
        version = VersionEnd(self._client, self._application, self._opened, topics, self._rows)
        with version:
            if not version.begin():
                self._check_repetition()
                return False
            self._participants.prepare(txn)
            self._commit_sent = True
            try:
                return version.finish(
                    lambda: recorded.update(record_places(self._client, txn, topics, self._application.admin_url))
                )
            except NotCommitted as error:
                if isinstance(error.__cause__, TransactionEnded):
                    raise self._ended_early(error.__cause__, checked=True) from error
                raise TxnConflict(error.message, advice=error.advice) from error

    def _ask_commit(self, txn: TxnId, *, again: bool = False) -> None:
        """Ask the broker to commit, without an application, or again. Raises TxnConflict, OutcomeUnknown."""
        self._commit_sent = True
        try:
            commit_asked(self._client, txn, again=again, repeatable=self._application.name is not None)
        except TransactionEnded as error:
            self._finish("aborted")
            raise self._ended_early(error) from error
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, TransactionEnded):
                self._forgotten = True
                self._finish(None)
            raise

    def _ended_early(self, error: TransactionEnded, *, checked: bool = False) -> TxnConflict:
        """Return the error of a transaction that ended before its commit. Raises VersionConflict or Fenced if another program of
        the application is the reason. `checked`: it is known that there is none.
        """
        assert self._id is not None
        if self._opened is not None and self._application.name is not None and not checked:
            with VersionEnd(self._client, self._application, self._opened, (), self._rows) as version:
                version.check(error)
        return ended_early(self._id, self._timeout_ms, self._now() - self._since, self._application, error)

    def _topics(self) -> list[Topic]:
        """Return what is committed: each topic, with the positions of its rows."""
        return [Topic(topic, places) for topic, places in self._places.items()]

    def abort(self) -> None:
        """Abort the transaction. If the transaction has ended, this call changes nothing. Raises TransactionEnded if a commit that
        was sent before has committed it. After any other error of the broker the transaction ends by its timeout.
        """
        with self._guard:
            if self._ended:
                return
            self._ended = True
        outcome: Outcome | None = None if self._commit_sent else "aborted"  # without a commit it can only be aborted
        try:
            if self._id is not None:
                self._client.end(self._id, commit=False)
            outcome = "aborted"
        except TransactionEnded as error:
            if self._commit_sent and error.code != TRANSACTION_NOT_FOUND:
                outcome = "committed"
            raise
        finally:
            self._finish(outcome)

    def _finish(self, outcome: Outcome | None) -> None:
        """End this object, and tell each consumer the outcome (None: not known)."""
        self._ended, self._outcome = True, outcome
        self._participants.ended(self._id, outcome)

    def _abort_after(self, error: BaseException) -> None:
        """Abort the transaction, unless it has ended. If the abort shows how the transaction has ended, add this to `error` as a
        note.
        """
        was_open = not self._ended and self._id is not None
        self._failed = self._failed or error
        try:
            self.abort()
        except TransactionEnded as second:
            if second.code != TRANSACTION_NOT_FOUND:
                error.add_note(self._visible())
            else:
                error.add_note(f"The broker has ended the Pulsar transaction {self.id} itself ({second}).")
        except PulsarError as second:
            error.add_note(
                f"The abort of the Pulsar transaction {self.id} is unknown ({second}). Its timeout ends it at the latest."
            )
        else:
            if was_open and self._commit_sent:
                error.add_note(f"The Pulsar transaction {self.id} is aborted: nothing of it is visible. It can be run again.")

    def _visible(self) -> str:
        """Return the note of an error that is raised although the transaction is committed."""
        return f"The Pulsar transaction {self.id} IS committed: its rows are visible. Do not run it again."

    def _check_takes(self, verb: str) -> None:
        """Raise OptionError if the transaction takes nothing more, because it has ended or a commit was begun."""
        self._check_open(verb)
        if self._committing or self._commit_sent:
            raise OptionError(
                f"The transaction {self.id} is being committed: it cannot {verb}.",
                advice="Call commit() again, then begin another one.",
            )

    def _check_open(self, verb: str) -> None:
        if self._ended:
            raise OptionError(f"The transaction {self.id or ''} has ended: it cannot {verb}.", advice="Begin another one.")

    def _repr_html_(self) -> str:
        """The state and the rows of the transaction, for notebooks."""
        state = self._outcome or ("committed" if self._committed is not None else "ended" if self._ended else "not committed")
        facts = [("transaction", self.id), ("state", state), ("rows", self._rows), ("topics", ", ".join(self._places))]
        return table((), facts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._abort_after(error)
            return
        if not self._ended and not self._commit_sent and (self._rows or self._participants):
            warnings.warn(self._left_out(), UncommittedTransaction, stacklevel=2)
        self.abort()

    def _left_out(self) -> str:
        rows = [f"{self._rows} rows for {', '.join(sorted(self._places))}"] if self._rows else []
        acks = ["acknowledgements"] if self._participants else []
        return (
            f"The block of transaction {self.id} ended without commit(): {' and '.join(rows + acks)} do not count. Call "
            "txn.commit() at the end of the block, or txn.abort() to give the transaction up."
        )
