"""All cases in the order in which they run. The simplest come first, so that the first failure is the simplest to explain."""

from __future__ import annotations

from conformance.store.case import Case
from conformance.store.cases import (
    connections,
    crashes,
    groups,
    histories,
    indexes,
    races,
    ranges,
    records,
    sequences,
    sessions,
    sizes,
    watches,
)

CASES: tuple[Case, ...] = tuple(
    case
    for group in (records, groups, indexes, ranges, sequences, sessions, watches, races, histories, crashes, connections, sizes)
    for case in group.cases.all
)
