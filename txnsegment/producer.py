"""`Producer`: rows of a plain Python program into one topic, transaction by transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from metadata.errors import OptionError, SchemaError
from metadata.write_set import Committed
from txnsegment.transaction import Batches, Transaction, batches_of
from txnsegment.values import WrittenValues


class Producer:
    """Made by `cluster.producer(topic)`; for one thread.

        with cluster.producer("orders") as producer:
            producer.send({"id": 1, "price": 9.5})
            producer.send({"id": 2, "price": 3.0})
            producer.flush()

    Rows wait in memory until `flush` commits them as one transaction; leaving the block flushes, unless it raises: then they are
    forgotten. For several topics, or together with acknowledgements, give a transaction (`cluster.begin()`) to `write`.

    A `plain` one writes to a `persistent://` topic without a transaction: rows are seen at once, and after an OutcomeUnknown
    another `flush` may double them.

    With `value_format="avro"` rows are bytes (and batches have the one column `value`), by the schema of the topic.
    """

    def __init__(
        self, begin: Callable[[], Transaction], topic: str, values: WrittenValues | None = None, *, plain: bool = False
    ) -> None:
        self._begin, self._topic, self._values, self._plain = begin, topic, values, plain
        self._waiting: list[Any] = []
        self._unsure: Transaction | None = None
        """Staged, and not known to be committed: tried again as it is."""
        self._staged = 0

    def send(self, row: Mapping[str, Any] | bytes) -> None:
        """Keep a row for the next `flush`. Raises ValueFormatError for bytes that are not Avro of the schema: they are not kept."""
        if self._values is not None:
            if not isinstance(row, bytes):
                raise SchemaError(f"A value is bytes, not {type(row).__name__}.", advice="Or leave value_format out.")
            self._values.rows([row])
            self._waiting.append(row)
            return
        if isinstance(row, bytes):
            raise SchemaError("A row is given by its columns, not bytes.", advice='Or make the producer with value_format="avro".')
        self._waiting.append(dict(row))

    def flush(self) -> Committed | None:
        """Commit what waits, in order; None if nothing does. After an error nothing of it was committed, or (OutcomeUnknown) it is
        not known; calling `flush` again is safe either way and never doubles a row (but for a plain one). Raises what
        `Transaction.append` and `Transaction.commit` do.
        """
        if self._unsure is None:
            if not self._waiting:
                return None
            txn = self._begin()
            given = list(self._waiting)
            txn.append(self._topic, pa.Table.from_pylist(given) if self._values is None else self._values.rows(given))
            self._unsure, self._staged = txn, len(self._waiting)
        count = self._staged
        committed = self._unsure.commit()
        del self._waiting[:count]
        self._unsure = None
        return committed

    def write(self, batches: Batches, *, txn: Transaction | None = None) -> Committed | None:
        """Write Arrow batches at once, as a transaction of their own; or stage them in `txn`, which commits them (then None)."""
        rows = batches if self._values is None else self._values.batches(batches_of(batches))
        if txn is not None:
            if self._plain:
                raise OptionError("A plain producer writes in no transaction.", advice="Make one without plain=True.")
            txn.append(self._topic, rows)
            return None
        self.flush()
        own = self._begin()
        own.append(self._topic, rows)
        return own.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.flush()
