"""A builder of histories for tests. Each call adds one event."""

from __future__ import annotations

from typing import Any, Self

from conformance.history.format import Entry, Event


class Telling:
    """A builder of a recorded history. A transaction may be given as a number n, for the id 1000000_n of the marker-based model."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._last: dict[str, int] = {}

    def add(self, kind: Any, *fields: Any, **more: Any) -> Self:
        self.events.append(kind(len(self.events), *fields, **more))
        return self

    def entry(self, log: str, kind: str, txn: int | str | None = None, **more: Any) -> Self:
        """Add the next entry of this log."""
        number = self._last[log] = self._last.get(log, 0) + 1
        name = f"1000000_{txn}" if isinstance(txn, int) else txn
        return self.add(Entry, log, number, kind, more.pop("id", f"e{len(self.events)}"), name, **more)
