"""What a task of a read gets in place of the reader. The partition says what to read, so a task needs no state of the reader, and
none of the modules of a plan (pydantic among them). A new process would take 0.15 s for these modules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from metadata.common.workers import tells_errors

if TYPE_CHECKING:
    import pyarrow as pa

_PICKLES: Final = "pyspark.sql.worker.plan_data_source_read"


@tells_errors
class TaskReader(DataSourceStreamReader):
    """The pickled form of `BatchReader` and `StreamReader`. It reads, and plans nothing."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from spark_txn_source.tasks import read_task  # imported late, because the process that plans reads no file

        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark commits with the reader that plans, never with its pickled form. Raises NotImplementedError."""
        raise NotImplementedError(f"a reader of tasks cannot commit the offset {end}")


def only_pickled(arguments: Sequence[str] | None = None) -> bool:
    """Return whether Spark asks for the reader of a stream in order to pickle it for the tasks, and for nothing else. Spark's
    daemon of planning processes does that in the first micro-batch of each query, after the long-lived process of the query has
    made the reader that plans, and has checked the options. `arguments`: those of this process, by default. If they say nothing
    (Spark starts processes without a daemon), return False: a complete reader is never wrong.
    """
    arguments = sys.argv if arguments is None else arguments
    return len(arguments) > 1 and arguments[0].removesuffix(".py").endswith("daemon") and arguments[1] == _PICKLES
