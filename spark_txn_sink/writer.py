"""The writers that Spark calls. They take Arrow batches and commit one transaction. `plan`, `staging` and `commit` do the work.

Spark pickles a writer for its tasks, so every task imports this module. The methods that only processes of the driver call import
their modules late: a task needs neither these modules nor pydantic, and a new process would take 0.15 s for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from metadata.common.workers import spare_imports, tells_errors
from spark_txn_sink.planned import Identity, WritePlan
from spark_txn_sink.staging import Staged, stage

if TYPE_CHECKING:
    from spark_txn_sink.staged_write import StagedWrite

Messages = Sequence[WriterCommitMessage | None]


@tells_errors
class BatchWriter(DataSourceArrowWriter):
    """The writer of one `df.write.format("txnsegment").mode("append").save()`. The write is a transaction of its own, or with
    `txnStaging` a part of a transaction over several topics. Spark pickles the writer for the tasks and the committing process.
    """

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        from metadata.client.client import shared_client
        from spark_txn_sink.options import WriteOptions
        from spark_txn_sink.plan import OVERWRITE, plan_write

        if overwrite:
            raise OVERWRITE
        parsed = WriteOptions.parse(options, streaming=False)
        self._url, self._timeout_ms = parsed.service_url.text, parsed.txn_timeout_ms
        client = shared_client(self._url)
        self._plan = plan_write(client, parsed, schema)
        token, unique = parsed.txn_staging, client.cluster.unique
        self._part_of = None if token is None else _begin(self._plan, token, unique())
        random = parsed.txn_app_id is None
        version = 1 if parsed.txn_version is None else parsed.txn_version
        self._identity = Identity(parsed.txn_app_id or f"write-{unique()}", version, random, streaming=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        spare_imports()
        return stage(self._plan, iterator)

    def commit(self, messages: Messages) -> None:
        if self._part_of is not None:
            self._part_of.commit(_staged(messages))
            return
        _commit(self._url, self._plan, self._identity, self._timeout_ms, messages)

    def abort(self, messages: Messages) -> None:
        if self._part_of is not None:
            self._part_of.abort()
            return
        _abort(self._url, self._plan, self._identity, messages)


@tells_errors
class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of one micro-batch of `df.writeStream.format("txnsegment")`. Spark creates one instance for the tasks and one in
    the process that commits.
    """

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        from metadata.client.client import shared_client
        from spark_txn_sink.options import WriteOptions
        from spark_txn_sink.plan import OVERWRITE, plan_write

        if overwrite:
            raise OVERWRITE
        parsed = WriteOptions.parse(options, streaming=True)
        self._url, self._timeout_ms, self._app = parsed.service_url.text, parsed.txn_timeout_ms, parsed.txn_app_id
        self._plan = plan_write(shared_client(self._url), parsed, schema)
        self._accepts_loss = parsed.after_restore == "continue"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        spare_imports()
        return stage(self._plan, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        _commit(self._url, self._plan, self._identity(batchId), self._timeout_ms, messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        _abort(self._url, self._plan, self._identity(batchId), messages)

    def _identity(self, batch_id: int) -> Identity:
        return Identity(self._app, batch_id, random=False, streaming=True, accepts_loss=self._accepts_loss)


def _begin(plan: WritePlan, token: str, write: str) -> StagedWrite:
    from spark_txn_sink.staged_write import StagedWrite

    return StagedWrite.begin(plan, token, write)


def _commit(url: str, plan: WritePlan, identity: Identity, timeout_ms: int, messages: Messages) -> None:
    from metadata.client.client import shared_client
    from spark_txn_sink import commit as committing

    committing.commit(shared_client(url), plan, identity, timeout_ms, _staged(messages))


def _abort(url: str, plan: WritePlan, identity: Identity, messages: Messages) -> None:
    from metadata.client.client import shared_client
    from spark_txn_sink import commit as committing

    committing.abort(shared_client(url), plan, identity, _staged(messages))


def _staged(messages: Messages) -> list[Staged | None]:
    return [cast("Staged | None", m) for m in messages]
