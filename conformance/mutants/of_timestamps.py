"""Faults of reads by publish time (protocol.md section 6, Timestamps), and of the check for offsets that a restore has lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from conformance.mutants.planting import Real, fault
from metadata.read.log_reader import LogReader
from metadata.read.reading import Reading
from metadata.rules.timestamps import Above, OpenTransactions
from spark_txn_source.log_ranges import LogRange

_OPEN = "metadata.rules.timestamps:OpenTransactions"

_TIMES = "tests/metadata/read/test_timestamps.py::"


@fault(
    "6, 8.5",
    "An end by publish time is not final while an open transaction may have an earlier publish time.",
    at=f"{_OPEN}.holding",
    by=f"{_TIMES}test_a_timestamp_closes_beyond_the_clock_allowance",
)
def open_transactions_hold_no_timestamp(real: Real, self: OpenTransactions, timestamp_ms: int) -> list[Any]:
    return []


@fault(
    "6, 8.5",
    "Clocks differ. An end by publish time is final only after it has passed on every clock.",
    at=f"{_OPEN}.passes_in",
    by=f"{_TIMES}test_a_timestamp_closes_beyond_the_clock_allowance",
)
def timestamp_without_allowance(real: Real, self: OpenTransactions, timestamp_ms: int) -> int:
    return max(0, timestamp_ms - self.now_ms)


@fault(
    "6, 8.5",
    "An end by publish time is not final while a registration above the cut may have an earlier publish time.",
    at="metadata.rules.timestamps:end",
    by=f"{_TIMES}test_an_end_is_final_once_no_earlier_row_can_still_come",
)
def undecided_rows_hold_no_timestamp(
    real: Real, published: Iterable[tuple[int, int]], timestamp_ms: int, cut: int, above: Iterable[Above], *, closed: bool
) -> Any:
    return real(published, timestamp_ms, cut, [one for one in above if one.publish_ms > timestamp_ms], closed=closed)


@fault(
    "6, 8.5",
    "Open transactions are read before the log, so that a transaction that ends in between is found in the log.",
    at="spark_txn_source.timestamps:final",
    by=f"{_TIMES}test_a_batch_beside_a_running_transaction_is_final_or_an_error",
)
def log_before_open_transactions(real: Real, log: LogReader, ms: int, timeout_ms: int | None) -> Any:
    return real(_LogFirst(log), ms, timeout_ms)


class _LogFirst:
    """A log that is read right before the open transactions, and not after them as in the correct order."""

    def __init__(self, log: LogReader) -> None:
        self._log, self.cluster = log, log.cluster
        self._early: list[Reading] = []

    def now(self) -> Reading:
        return self._early.pop() if self._early else self._log.now()

    def open_transactions(self) -> OpenTransactions:
        self._early.append(self._log.now())
        return self._log.open_transactions()


@fault(
    "6",
    "A range by publish time whose rows were all trimmed raises DataLoss. It is not an empty read.",
    at="spark_txn_source.losses:within_trimmed",
    by="tests/spark_txn_source/test_persistent_source.py::test_a_range_of_timestamps_among_trimmed_rows_is_an_error",
)
def timestamps_among_trimmed_rows(real: Real, found: LogRange, given: Any) -> LogRange:
    return found


@fault(
    "8.5, A31",
    "An offset that a restore has lost is refused, since a read up to it would return fewer rows than the first time.",
    at="metadata.cluster.cluster:check_not_lost",
    by="tests/metadata/backup/test_backups.py::test_offsets_of_the_lost_history_are_refused",
)
def restored_log_is_read_from_a_lost_offset(real: Real, restored: Mapping[Any, Any], number: int, what: str) -> None:
    return
