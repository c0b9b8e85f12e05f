"""The reports of drivers in the store: reading them, and deleting those of dead drivers (`metadata.records.driver_records`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from metadata.common.errors import CorruptRecord
from metadata.records import paths
from metadata.records.driver_records import DriverReport
from metadata.records.paths import Key
from metadata.rules.reporting import is_current
from metadata.store.contract import Delete, MetadataStore, Record, View, decide, in_groups, written


def read_reports(view: View, most: int) -> tuple[list[DriverReport], int]:
    """Return the reports that count now, of the first `most` records by key, and how many records there are."""
    found, now_ms = view.keys(paths.DRIVERS), view.now_ms()
    keys = [Key(path, "") for path in found[:most]]
    reports = [report for _, report in _parsed(view.get_many(keys) if keys else ())]
    return [one for one in reports if is_current(one, now_ms)], len(found)


def keys_without_reports(view: View) -> list[str]:
    """Return the paths of all records but reports. A store that has reports alone has no cluster: a process of an earlier one wrote
    them.
    """
    return [path for path in view.keys(paths.EVERYTHING) if not path.startswith(paths.DRIVERS.first)]


def delete_old(store: MetadataStore) -> int:
    """Delete the reports that do not count any more. Return how many there were. Any number of processes may call this function. A
    report that its driver renews at the same time stays.
    """

    def body(view: View) -> int:
        keys, now_ms = [Key(path, "") for path in view.keys(paths.DRIVERS)], view.now_ms()
        found = _parsed(record for some in in_groups(keys) for record in view.get_many(some))
        old = [record for record, report in found if not is_current(report, now_ms)]
        return sum(written(store, Delete(record.key, expect=record, durable=False)) for record in old)

    return decide(store, body)


def _parsed(records: Iterable[Record | None]) -> Iterator[tuple[Record, DriverReport]]:
    """Yield the reports that can be read. A damaged one disturbs nobody, and `txnsegment doctor` names it."""
    for record in records:
        if record is not None:
            try:
                report = DriverReport.of(record)
            except CorruptRecord:
                continue
            yield record, report
