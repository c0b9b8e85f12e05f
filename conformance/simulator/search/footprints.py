"""The records that each kind of actor may touch. If a call touches only records that no other actor touches, the others cannot
observe when the call happens. The search then tries only one order (partial order reduction). The search checks every call against
the records that are declared here for its actor, since the reduction of one call relies on the records of all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from conformance.simulator.search.automata import Request
from metadata.records.paths import (
    OPS_BY_TXN,
    TXN_ABORTED_BY_POSITION,
    TXN_BY_DEADLINE,
    TXN_BY_FINAL_STATE,
)
from metadata.store.contract import Append


class Role(StrEnum):
    WRITER = "writer"
    READER = "reader"
    SWEEPER = "sweeper"


FAMILIES = (
    "/txn/id/",
    "/txn/op/",
    "/txn/app/",
    "/txn/tc-seq/",
    "/txn/segment-events/",
    "/txn/segment-state/watermark/",
    "/txn/segment-state/aborted/",
    "/log/",
    "/topics/",
    "/schemas/",
)
INDEXES = {
    TXN_BY_DEADLINE: "/txn/id/",
    TXN_BY_FINAL_STATE: "/txn/id/",
    OPS_BY_TXN: "/txn/op/",
    TXN_ABORTED_BY_POSITION: "/txn/segment-state/aborted/",
}
CHANGES = {
    Role.WRITER: frozenset({"/txn/id/", "/txn/op/", "/txn/app/", "/txn/tc-seq/", "/txn/segment-events/", "/log/"}),
    Role.READER: frozenset({"/txn/id/"}),
    Role.SWEEPER: frozenset(FAMILIES) - {"/topics/", "/schemas/", "/txn/tc-seq/"},
}
LOOKS = {
    Role.WRITER: frozenset({"/txn/id/", "/txn/op/", "/txn/app/", "/txn/tc-seq/", "/log/", "/topics/"}),
    Role.READER: frozenset({"/txn/id/", "/log/", "/topics/", "/txn/segment-state/watermark/"}),
    Role.SWEEPER: frozenset(FAMILIES) - {"/txn/tc-seq/"},
}
NOTHING: frozenset[str] = frozenset()


class OutsideFootprint(AssertionError):
    """An actor touches records that CHANGES and LOOKS do not list for its role. So these tables are wrong, and the reduction is not
    valid.
    """


def touched(request: Request) -> tuple[frozenset[str], frozenset[str]]:
    """Return the families of records (FAMILIES) that a request reads, and those that it changes. Files belong to no family, because
    a file never changes, and an actor reads only files whose names it found in records.
    """
    if request.kind == "get":
        return frozenset(_family(key.path) for key in request.what), NOTHING
    if request.kind == "keys":
        return frozenset({_family(request.what[0].first)}), NOTHING
    if request.kind == "index":
        return frozenset({INDEXES[request.what[0]]}), NOTHING
    if request.kind == "write":
        return NOTHING, frozenset(_family(w.prefix.path if isinstance(w, Append) else w.key.path) for w in request.what)
    return NOTHING, NOTHING


def check(role: Role, request: Request) -> None:
    """Raise OutsideFootprint if the request touches records that are not declared for its actor's role."""
    looks, changes = touched(request)
    if not (looks <= LOOKS[role] and changes <= CHANGES[role]):
        raise OutsideFootprint(f"a {role} does {request}")


def private(role: Role, request: Request, others: Iterable[Role]) -> bool:
    """Return whether a request commutes with all calls of these other actors, now and later. If so, their order changes neither the
    answer to the request nor the answers to those calls. Raises OutsideFootprint as `check` does.
    """
    check(role, request)
    looks, changes = touched(request)
    return all(not looks & CHANGES[other] and not changes & (LOOKS[other] | CHANGES[other]) for other in others)


def _family(path: str) -> str:
    for family in FAMILIES:
        if path.startswith(family):
            return family
    raise OutsideFootprint(f"nobody is declared to touch {path}")
