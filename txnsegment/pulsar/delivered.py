"""The order in which a consumer has delivered rows of several segments. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from metadata.records.row_ranges import FIRST, Row, Span


class _Run(NamedTuple):
    """Rows of one segment that were delivered one after another."""

    segment: str
    first: Row
    end: Row


class Delivered:
    """What was delivered, in its order."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def add(self, segment: str, span: Span) -> None:
        """Take note of the next row, or of several rows."""
        last = self._runs[-1] if self._runs else None
        if last is not None and last.segment == segment and last.end == span[0]:
            self._runs[-1] = last._replace(end=span[1])
        else:
            self._runs.append(_Run(segment, *span))

    def up_to(self, segment: str, span: Span) -> dict[str, Row] | None:
        """Return for each segment the end of the rows that were delivered up to a row, inclusive. None: the row was not delivered.

        >>> found = Delivered()
        >>> found.add("a", (Row(0, 0, 0), Row(1, 0, 2)))
        >>> found.add("b", (Row(0, 0, 0), Row(2, 0, 1)))
        >>> found.add("a", (Row(1, 0, 2), Row(1, 0, 3)))
        >>> found.up_to("b", (Row(0, 0, 0), Row(2, 0, 1)))
        {'a': Row(ledger_id=1, entry_id=0, batch_index=2), 'b': Row(ledger_id=2, entry_id=0, batch_index=1)}
        """
        ends: dict[str, Row] = {}
        for one in self._runs:
            if one.segment == segment and one.first < span[1] <= one.end:
                return {**ends, segment: span[1]}
            ends[one.segment] = one.end
        return None

    def forget(self, acked: Mapping[str, Row]) -> None:
        """Forget the first runs, as far as they are acknowledged. `acked`: see `beginning`."""
        count = 0
        while count < len(self._runs) - 1 and self._runs[count].end <= acked.get(self._runs[count].segment, FIRST):
            count += 1
        del self._runs[:count]
