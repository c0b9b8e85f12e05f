"""The writers that Spark calls for a Pulsar topic.

Spark makes the writer of a stream twice for each micro-batch. The first writer is pickled for the tasks. The second writer commits,
in another process. So the transaction is opened when the first writer is pickled, and the second writer gets the transaction's id
from the reports of the tasks.
"""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from metadata.common.errors import OptionError, TxnSegmentError
from metadata.common.workers import spare_imports, tells_errors
from pulsar_protocol.auth import connect, shared
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import TopicMissing, TopicTerminated
from pulsar_protocol.layout import Position
from pulsar_protocol.log_holding import forget, hold
from pulsar_protocol.sent_log import Sent as SentRecord
from pulsar_protocol.sent_log import log_segment, record_sent
from spark_txn_sink.plan import OVERWRITE
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.committing import Committer
from spark_txn_sink.pulsar.control_topic import ControlTopic
from spark_txn_sink.pulsar.ends import PATIENCE_SECONDS, Ends, NotCommitted
from spark_txn_sink.pulsar.journal import Note, end_write, merged, token
from spark_txn_sink.pulsar.options import PulsarWriteOptions
from spark_txn_sink.pulsar.plan import PulsarPlan, check_key_column, plan_write
from spark_txn_sink.pulsar.sending import Sent, Task, send_rows
from spark_txn_sink.pulsar.settling import settle
from spark_txn_sink.pulsar.work import Work

log = logging.getLogger("txnsegment.sink.pulsar")

Messages = Sequence[WriterCommitMessage | None]
_committers: dict[tuple[str, str, str], Committer] = {}
"""The committers of the streams of this process, by service URL, application and topic. A process commits one batch at a time."""


class NotPlanned(TxnSegmentError, pickle.PickleError):
    """A write was refused before its first task. The write is planned while Spark pickles the writer. This error is a PickleError,
    because Spark reports any other error at this time as a failure of the pickling.
    """


@tells_errors
class _Writer:
    """The code that `BatchWriter` and `StreamWriter` share."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool, *, streaming: bool) -> None:
        if overwrite:
            raise OVERWRITE
        self.options = PulsarWriteOptions.parse(options, streaming=streaming)
        self._schema = schema
        check_key_column(self.options, schema)
        self.plan: PulsarPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self.plan is None:
            try:
                self.plan = plan_write(self._planner(), self.options, self._schema, uuid.uuid4().hex)
            except TxnSegmentError as error:
                raise NotPlanned(f"{type(error).__name__}: {error.message}", advice=error.advice) from None
        return self.__dict__

    def _planner(self) -> PulsarClient:
        """Return the client that plans the write. A stream, a batch with `txnVersion`, and a transaction over several topics are
        planned in a new process each time, so their client waits for a broker that is away. For any other batch the address may be
        wrong if the first connection fails, so its client does not wait.
        """
        client = shared(self.options.service_url)
        again = self.options.streaming or self.options.txn_version is not None or self.options.part_of is not None
        return client.patient() if again else client

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        assert self.plan is not None
        spare_imports()
        return send_rows(shared(self.plan.service_url).patient(), self.plan, iterator, Task.now(), self.options.txn_app_id)

    def finish(self, messages: Messages, version: int) -> bool:
        """Commit the transaction of the tasks, or report the write to the transaction over several topics of which it is a part.
        Return False if the version was committed before.
        """
        reports = [cast("Sent", one) for one in messages if one is not None]
        txn = self._txn(reports)
        if len(reports) != len(messages) or txn is None:
            raise NotCommitted(
                f"A task of the write to {self.options.topic} did not report what it sent.",
                advice="Spark must not commit such a write; run it again.",
            )
        if self.options.part_of is not None:
            self._end_part(self.options.part_of, reports)
            return True
        query = next((one.query for one in reports if one.query is not None), None)
        run = next((one.run for one in reports if one.run is not None), None)
        app = self.options.txn_app_id or (query if self.options.streaming else None)
        if app is None and self.options.streaming:
            raise OptionError(
                "The write has no application: the streaming query's id did not reach the tasks.",
                advice="Give the stream the option txnAppId.",
            )
        work = Work(
            txn=txn,
            run=(run if self.options.streaming else None) or txn.text,
            version=version,
            topic=self.options.topic,
            segments=joined(reports),
            rows=sum(one.rows for one in reports),
            what=f"{app or 'a write'} to {self.options.topic}",
            streaming=self.options.streaming,
            accepts_loss=self.options.after_restore == "continue",
            opened=next((one.opened for one in reports), None),
        )
        with ThreadPoolExecutor(1) as beside:
            recording = beside.submit(self._record, work)
            committed = True
            if app is None:
                self._ends().commit_alone(work, recording.result)
            else:
                with committer(self.options, app) as mine:
                    committed = mine.commit(work, recording.result)
        if not committed:
            return False
        recorded = recording.result()
        if recorded is not None and work.opened is not None:
            settle(shared(self.options.service_url).patient(), self.options.topic, work.opened, recorded)
        return True

    def _end_part(self, opened: Opened, reports: Sequence[Sent]) -> None:
        """Report to the transaction over several topics that all rows of this write are sent."""
        assert self.plan is not None
        assert self.plan.write is not None
        mine = token(opened)
        execution = next((one.execution[1] for one in reports if one.execution is not None and one.execution[0] == mine), None)
        rows = sum(one.rows for one in reports)
        done = Note(
            "ended", opened.txn.text, self.plan.write, self.options.topic, joined(reports), rows, execution, self.plan.opened.place
        )
        end_write(shared(self.options.service_url).patient(), opened, done)

    def _record(self, work: Work) -> Position | None:
        """Record where the rows of the transaction are, so that readers see all of them or none (`pulsar_protocol.sent_log`).
        Return the position of the record, or None if the transaction has no rows.
        """
        if not work.segments:
            return None
        client, record = shared(self.options.service_url).patient(), SentRecord(work.txn, work.segments)
        if work.opened is not None:
            try:
                return record_sent(client, work.opened.segment, record)
            except (TopicTerminated, TopicMissing) as error:
                log.info("asking for the layout of the log of %s again: %s", self.options.topic, error.message)
                forget(client, self.options.topic)
        segment = log_segment(client, self.options.topic)
        hold(client, self.options.topic, segment)
        return record_sent(client, segment, record)

    def give_up(self, messages: Messages) -> None:
        """Abort the transaction of a write that Spark gave up. A transaction over several topics ends, too: Pulsar cannot take back
        the rows that tasks of the write may have sent.
        """
        txn = self._txn([cast("Sent", one) for one in messages if one is not None])
        if txn is not None:
            self._ends().abort(txn)

    def _ends(self) -> Ends:
        return Ends(shared(self.options.service_url).patient().end, pause=time.sleep, now=time.monotonic, patience=PATIENCE_SECONDS)

    def _txn(self, reports: Sequence[Sent]) -> TxnId | None:
        """Return the transaction of the reports. Without reports return the transaction of the plan, or None if there is no plan.
        Raises NotCommitted if the reports have several transactions.
        """
        found = {one.txn for one in reports} or ({self.plan.opened.txn} if self.plan is not None else set())
        if len(found) > 1:
            raise NotCommitted("The tasks of one write used several transactions.", advice="Run the write again.")
        return next(iter(found), None)


@tells_errors
class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of one `df.write.format("txnsegment").mode("append").save()` to a Pulsar topic."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, streaming=False)

    def commit(self, messages: Messages) -> None:
        version = self.options.txn_version
        self.finish(messages, 1 if version is None else version)

    def abort(self, messages: Messages) -> None:
        self.give_up(messages)


@tells_errors
class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of one micro-batch of `df.writeStream.format("txnsegment")` to a Pulsar topic."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, streaming=True)

    def commit(self, messages: Messages, batchId: int) -> None:
        self.finish(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        self.give_up(messages)


def joined(reports: Sequence[Sent]) -> dict[str, tuple[Position, Position]]:
    """Return the first and the last position of the rows of all tasks in each segment."""
    topic = ""
    return merged((topic, one.segments) for one in reports).get(topic, {})


@contextmanager
def committer(options: PulsarWriteOptions, app: str) -> Iterator[Committer]:
    """Yield the committer of an application and a topic. The one of a stream stays for the next micro-batch. The one of a batch is
    closed at the end of the block, because each batch takes over the control topic anew.
    """
    key, url = (options.service_url, app, options.topic), options.service_url
    found = _committers.get(key) if options.streaming else None
    if found is None:
        control = ControlTopic(lambda: connect(url).patient(), app, options.topic, options.admin_url)
        found = Committer(control, pause=time.sleep, now=time.monotonic, patience=PATIENCE_SECONDS)
    if options.streaming:
        _committers[key] = found
        yield found
        return
    try:
        yield found
    finally:
        found.close()
