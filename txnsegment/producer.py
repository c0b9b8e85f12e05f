"""`Producer`: rows of a plain Python program into one topic, transaction by transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from metadata.write_set import Committed
from txnsegment.transaction import Batches, Transaction


class Producer:
    """Made by `cluster.producer(topic)`; for one thread.

        with cluster.producer("orders") as producer:
            producer.send({"id": 1, "price": 9.5})
            producer.send({"id": 2, "price": 3.0})
            producer.flush()

    Rows wait in memory until `flush` commits them as one transaction; leaving the block flushes, unless it raises: then they are
    forgotten. For several topics, or together with acknowledgements, give a transaction (`cluster.begin()`) to `write`.
    """

    def __init__(self, begin: Callable[[], Transaction], topic: str) -> None:
        self._begin, self._topic = begin, topic
        self._waiting: list[Mapping[str, Any]] = []
        self._unsure: Transaction | None = None
        """Staged, and not known to be committed: tried again as it is."""
        self._staged = 0

    def send(self, row: Mapping[str, Any]) -> None:
        """Keep a row for the next `flush`."""
        self._waiting.append(dict(row))

    def flush(self) -> Committed | None:
        """Commit what waits, in order; None if nothing does. After an error nothing of it was committed, or (OutcomeUnknown) it is
        not known; calling `flush` again is safe either way and never doubles a row. Raises what `Transaction.append` and
        `Transaction.commit` do.
        """
        if self._unsure is None:
            if not self._waiting:
                return None
            txn = self._begin()
            txn.append(self._topic, pa.Table.from_pylist(list(self._waiting)))
            self._unsure, self._staged = txn, len(self._waiting)
        count = self._staged
        committed = self._unsure.commit()
        del self._waiting[:count]
        self._unsure = None
        return committed

    def write(self, batches: Batches, *, txn: Transaction | None = None) -> Committed | None:
        """Write Arrow batches at once, as a transaction of their own; or stage them in `txn`, which commits them (then None)."""
        if txn is not None:
            txn.append(self._topic, batches)
            return None
        self.flush()
        own = self._begin()
        own.append(self._topic, batches)
        return own.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.flush()
