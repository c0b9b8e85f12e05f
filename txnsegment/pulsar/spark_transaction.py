"""`PulsarSparkTransaction`: one Pulsar transaction over the writes of a Spark program (`cluster.transaction()`)."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from metadata.common.clock import SystemClock
from metadata.common.errors import TxnConflict, VersionConflict
from metadata.common.options import option_text
from metadata.common.service import SERVICE_URL
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.layout import Bits
from spark_txn_sink.local_properties import TRANSACTION
from spark_txn_sink.pulsar.journal import Note, Unfinished, close, merged, token
from spark_txn_sink.pulsar.many_topics import Application, Topic
from spark_txn_source.option_table import ENDING_TIMESTAMP, TOPIC, TOPICS
from spark_txn_source.pulsar.option_table import ENDING_OFFSETS
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.several import parts_options
from txnsegment.blocks import entered, left
from txnsegment.executions import active, has_succeeded
from txnsegment.pulsar.ack_records import joined
from txnsegment.pulsar.ending import Participant
from txnsegment.pulsar.opening import full_name, owned_acks, subscription_name
from txnsegment.pulsar.row_acks import GivenRows, RowsTaken, acks_of, given_rows, identified, topic_of
from txnsegment.pulsar.subscriptions import PulsarSubscriptions
from txnsegment.pulsar.transaction import PulsarTransaction
from txnsegment.pulsar.transaction_acks import Claim, TransactionAcks
from txnsegment.pulsar.unread import Unread, check_options, read_exactly, unread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = logging.getLogger("txnsegment.transaction.pulsar")


class PulsarSparkTransaction(PulsarTransaction):
    """A Pulsar transaction over several `df.write`s into any topics, and over the acknowledgement of the rows from which these
    writes were computed. Made by `cluster.transaction()`.

        with cluster.transaction(app="etl", version=7) as txn:
            orders = txn.read(spark, "orders", subscription="etl")
            orders.where("amount >= 20").write.format("txnsegment").mode("append").options(**txn.options).save("large")
            orders.where("amount < 20").write.format("txnsegment").mode("append").options(**txn.options).save("small")

    The tasks of each write send their rows in the transaction, which nobody sees before its commit. The end of the block records
    where the rows are, and commits all of them by one request. If the block raises, or a write fails, the transaction is aborted,
    since Pulsar cannot take back a part of it. If the driver dies, the next run of the application aborts it, or its timeout does.

    The transaction is open from the first `read`, `append` or use of `options` on. Writes may run in several threads of the driver.
    All of them must be done before the block ends.
    """

    def __init__(self, client: PulsarClient, timeout_ms: int, bits: Callable[[], Bits], application: Application) -> None:
        super().__init__(client, timeout_ms, bits, application)
        self._subscriptions = PulsarSubscriptions(client)
        self._acking = threading.RLock()
        self._owned: list[TransactionAcks] = []
        """The acknowledgements of the subscriptions that this transaction owns."""
        self._left = 0
        """How many rows of `acknowledge_rows` no earlier transaction has acknowledged."""
        self._writes: list[Note] | None = None
        """The finished writes of Spark; None before the commit."""

    @property
    def _has_journal(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, str]:
        """The options that make a `df.write.format("txnsegment").mode("append")` part of this transaction:
        `.options(**txn.options)`. Read this property in the thread that writes.

        Raises OptionError (the transaction has ended), TopicMissing (the topic of its records does not exist, and there is no REST
        interface to create it), the broker's error.
        """
        self._check_takes("write")
        self._begin_once()
        assert self._opened is not None
        mine = token(self._opened)
        if (spark := active()) is not None:  # so that tasks report the token and the execution
            spark.setLocalProperty(TRANSACTION, mine)
        admin = self._application.admin_url
        return {"serviceUrl": self._client.url, "txnStaging": mine, **({} if admin is None else {"adminUrl": admin})}

    def read(self, spark: SparkSession, topic: str | Sequence[str], *, subscription: str, **options: object) -> DataFrame:
        """Read the rows of one or several topics that a subscription has not acknowledged, up to now. The commit acknowledges
        exactly these rows.

        The DataFrame returns the same rows whenever and however often Spark computes it. Each topic is read up to its own cut. The
        subscription belongs to this transaction until the transaction ends: meanwhile no consumer and no other transaction gets
        it. `options`: those of a batch read, without a start.

        Raises TopicMissing, SubscriptionNotFound, SubscriptionBusy (a consumer, a stream or another transaction has the
        subscription), OptionError (this includes a transaction that has ended), DataLoss, AckConflict (this transaction
        acknowledges the rows already), or the broker's error.
        """
        self._check_takes("read")
        check_options(options)
        name = subscription_name(subscription)
        given = {key: text for key, value in options.items() if (text := option_text(key, value)) is not None}
        given |= {SERVICE_URL.name: self._client.url}
        names = [full_name(topic)] if isinstance(topic, str) else [full_name(one) for one in topic]
        given |= {TOPIC.name: names[0]} if isinstance(topic, str) else {TOPICS.name: json.dumps(names)}
        parsed = parts_options(self._client, PulsarReadOptions.parse(given, streaming=False), names)
        found: dict[TransactionAcks, Unread] = {}
        with self._acks_of(sorted(parsed), name) as acks:
            for one in acks:
                found[one] = unread(self._client, parsed[one.topic], name, one.state())
                one.hold(found[one].held)
                one.check_unclaimed(found[one].rows)
            ends = (ENDING_OFFSETS.name.lower(), ENDING_TIMESTAMP.name.lower())
            given = {key: text for key, text in given.items() if key.lower() not in ends}
            df = spark.read.format("txnsegment").options(**given, **read_exactly(found.values())).load()
            for one, rows in found.items():
                log.info("read txn=%s topic=%s to=%s subscription=%s", self.id, one.topic, rows.ends, name)
            for one, rows in found.items():
                if rows.rows and not rows.ends:
                    one.acknowledge_now(rows.rows)  # these positions have no rows
            # The last step: if one of the steps above raises, no row is acknowledged.
            self._take_part({one: (rows.rows, rows.sent) for one, rows in found.items() if rows.ends})
            return df

    def acknowledge_rows(self, rows: DataFrame, *, subscription: str) -> None:
        """Acknowledge, with the commit, the rows of a DataFrame that was read with `includeMetadata=true`, such as a micro-batch
        in `foreachBatch`. Runs two Spark jobs: over the columns `__segment` and `__messageId`, and over the entries that have the
        rows, which are read again. The subscription belongs to this transaction until the transaction ends, as by `read`.

        Raises SchemaError (the columns are missing), AckConflict (this transaction acknowledges the rows already), and the errors
        of `read`. The commit raises AckConflict if the subscription has acknowledged one of the rows before, unless the version of
        the transaction was committed before. If it was, the commit raises VersionConflict if the subscription has not acknowledged
        all the rows.
        """
        self._check_takes("acknowledge")
        name = subscription_name(subscription)
        ids = identified(rows).persist()
        try:
            by_topic: dict[str, dict[str, GivenRows]] = {}
            for segment, given in given_rows(ids).items():
                by_topic.setdefault(topic_of(self._client, segment), {})[segment] = given
            with self._acks_of(sorted(by_topic), name) as acks:
                found: dict[TransactionAcks, Claim | RowsTaken] = {}
                for one in acks:
                    one.hold(tuple(by_topic[one.topic]))
                    found[one] = self._claim_of(one, rows.sparkSession, ids, by_topic[one.topic])
                self._take_part(found)
                for one, made in found.items():
                    total = sum(part.count for part in by_topic[one.topic].values())
                    self._left += made.left if isinstance(made, RowsTaken) else total
        finally:
            ids.unpersist()

    def _check_repetition(self) -> None:
        """Raise VersionConflict if `acknowledge_rows` was given rows that no earlier transaction had acknowledged. The committed
        version has acknowledged all rows of its micro-batch, so this is another micro-batch of the same version.
        """
        if self._left:
            raise VersionConflict(
                f"Version {self._application.version} of the application {self._application.name} is committed, and {self._left} "
                "rows that this transaction acknowledges were not acknowledged when it began.",
                advice="Nothing of this transaction is visible or acknowledged. Is the checkpoint an old copy, or was the "
                "subscription moved back? Begin again with a new checkpoint and another app: txn.read gives the rows that are not "
                "acknowledged. If two programs run this version, stop one of them.",
            )

    def _claim_of(
        self, acks: TransactionAcks, spark: SparkSession, ids: DataFrame, wanted: dict[str, GivenRows]
    ) -> Claim | RowsTaken:
        """Return what an acknowledgement of the given rows of a topic claims, or why they cannot be acknowledged: the subscription
        has acknowledged some of them before. Rows that this transaction claims already count as acknowledged, so that two claims
        leave no gap between them. Raises AckConflict if some of the given rows are among these.
        """
        acked, claimed = acks.state().rows, acks.claimed
        try:
            return acks_of(spark, self._client, acks.topic, joined(acked, claimed), ids, wanted), None
        except RowsTaken as conflict:
            if not claimed:
                return conflict
        try:
            mine = acks_of(spark, self._client, acks.topic, acked, ids, wanted)
        except RowsTaken as conflict:
            return conflict
        acks.check_unclaimed(mine)
        return mine, None

    def _take_part(self, found: Mapping[TransactionAcks, Claim | RowsTaken]) -> None:
        """Let acknowledgements count with the commit: all of them, or none if another thread has begun to end the transaction. Let
        the commit raise a RowsTaken.
        """
        with self._guard:
            for one in found:
                self.join(one)
            for one, made in found.items():
                if isinstance(made, RowsTaken):
                    one.refuse(made)
                else:
                    one.claim(*made)

    @contextmanager
    def _acks_of(self, topics: Sequence[str], subscription: str) -> Iterator[list[TransactionAcks]]:
        """Yield the acknowledgements of the subscription of each topic, which this transaction then owns. At the end of the block,
        give those free which have not joined the transaction.
        """
        with self._acking:
            made: list[TransactionAcks] = []
            try:
                for topic in topics:
                    known = next((one for one in self._owned if (one.topic, one.subscription) == (topic, subscription)), None)
                    if known is None:
                        owned = owned_acks(self._client, self._subscriptions, topic, subscription)
                        known = TransactionAcks(self._client, owned, topic, subscription)
                    made.append(known)
                yield made
            finally:
                for one in made:
                    if one not in self._owned:
                        one.close()

    def join(self, participant: Participant) -> None:
        super().join(participant)
        if isinstance(participant, TransactionAcks) and participant not in self._owned:
            self._owned.append(participant)

    def _topics(self) -> list[Topic]:
        if self._writes is None and self._opened is not None:
            try:
                writes = close(self._client, self._opened)
            except Unfinished as error:
                raise TxnConflict(error.message, advice=error.advice) from error
            for one in writes:
                if not has_succeeded(one.execution, one.topic, SystemClock()):
                    raise TxnConflict(
                        f"A write to {one.topic} failed in Spark after it had sent its rows, and Pulsar cannot take them back.",
                        advice="Nothing of the transaction is visible. Run the whole block again.",
                    )
            self._rows += sum(one.rows for one in writes)
            self._writes = writes
        writes = self._writes or []
        logged = {one.topic: one.logged for one in reversed(writes)}
        places = merged([*self._places.items(), *((one.topic, one.segments) for one in writes)])
        return [Topic(name, segments, logged.get(name)) for name, segments in places.items()]

    def __enter__(self) -> Self:
        self._check_open("begin a block")
        entered(self, self._client.url)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        left(self)
        if self._ended:
            if error is None and self._failed is not None and self._committed is None:
                raise TxnConflict(
                    f"The transaction {self.id or ''} was aborted within its block, because a call failed: {self._failed}",
                    advice="Nothing of it is visible. Run the whole block again.",
                ) from self._failed
            return
        if error is None:
            try:
                self.commit()
            except BaseException as failed:
                self._abort_after(failed)
                raise
        else:
            self._abort_after(error)
