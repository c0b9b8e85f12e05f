"""Measures the records and bytes written to a metadata store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from conformance.harness.faulty_store import Call
from metadata.store.contract import Delete


class Weighed(NamedTuple):
    """The number of records written and deleted, and the bytes of the values written."""

    written: float = 0
    deleted: float = 0
    bytes: float = 0

    def since(self, before: Weighed) -> Weighed:
        return Weighed(*(now - then for now, then in zip(self, before, strict=True)))

    def each(self, count: int) -> Weighed:
        return Weighed(*(value / count for value in self))


class Weighing:
    """Counts the records and bytes of all writes to a `FaultyStore`. The store calls this object as its policy. `weighed`: the
    totals so far.
    """

    def __init__(self) -> None:
        self.weighed = Weighed()

    def __call__(self, call: Call, go: Callable[[], Any]) -> Any:
        done = go()
        values = [w.value for w in call.writes if not isinstance(w, Delete)]
        now = self.weighed
        self.weighed = Weighed(
            now.written + len(values), now.deleted + len(call.writes) - len(values), now.bytes + sum(map(len, values))
        )
        return done
