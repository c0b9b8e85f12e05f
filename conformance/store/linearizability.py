"""Is a recorded history of one key linearizable? The object is a register with versions: get, put and delete, with expected
versions.

The search is Wing and Gong's with Lowe's cache of visited states. It takes any operation that began before every open one ended,
checks whether its answer fits the state, and goes on; a state reached with the same set of operations is not tried again. Two facts
shorten the search. An operation that changes nothing and fits now can be taken at once. An operation without an answer may be taken
at any time or never. See Wing and Gong, "Testing and verifying concurrent objects" (1993), and Lowe, "Testing for linearizability"
(2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from conformance.results import Span
from conformance.store.history import Operation
from metadata.store.contract import ABSENT

BUDGET = 1_000_000
"""Configurations that are tried before the search gives up."""


class State(NamedTuple):
    """The content of the register. The version counts the puts of one life of the key, from 0."""

    version: int
    value: str | None


NOTHING = State(ABSENT, None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`linearizable` None: not decided within the budget. `explained`: the number of operations in the best attempt, in the order
    `order`. `stuck`: the operations of which one had to come next and none fitted the state `state`.
    """

    linearizable: bool | None
    tried: int
    order: tuple[Operation, ...]
    state: State
    stuck: tuple[Operation, ...]

    def story(self, history: Sequence[Operation], *, last: int = 8) -> str:
        """The explanation for a person: the end of the best attempt, and the operations that did not fit."""
        if self.linearizable:
            return f"{len(history)} operations fit one order."
        known = "no record" if self.state == NOTHING else f"{self.state.value!r} with version {self.state.version}"
        lines = [
            f"{len(self.order)} of {len(history)} operations on {history[0].key} fit one order; then it holds {known}",
            *(f"  fits: {_line(operation)}" for operation in self.order[-last:]),
            *(f"  does not: {_line(operation)}" for operation in self.stuck[:last]),
        ]
        if self.linearizable is None:
            lines.insert(0, f"Not decided after {self.tried} configurations: record a shorter history.")
        return "\n".join(lines)

    def spans(self, history: Sequence[Operation], *, around: int = 40) -> tuple[Span, ...]:
        """The operations near the failure, for a timeline."""
        wrong = set(self.stuck)
        near = sorted({*self.order[-around:], *wrong}, key=lambda operation: operation.began)
        return tuple(
            Span(o.actor, o.label(), o.began, None if math.isinf(o.ended) else o.ended, wrong=o in wrong) for o in near or history
        )


def check(history: Sequence[Operation], *, initial: State = NOTHING, budget: int = BUDGET) -> Verdict:
    """Whether there is an order of the operations of one key, each between its beginning and its end, that explains all answers."""
    operations = sorted(history, key=lambda operation: operation.began)
    must = sum(1 << n for n, operation in enumerate(operations) if operation.answer != "unknown")
    stack = [_settled(operations, 0, initial, None)]
    seen: set[tuple[int, State]] = set()
    best = stack[0]
    tried = 0
    while stack:
        here = stack.pop()
        if (here.done, here.state) in seen:
            continue
        seen.add((here.done, here.state))
        tried += 1
        if here.done.bit_count() >= best.done.bit_count():
            best = here
        if here.done & must == must:
            return Verdict(True, tried, _order(operations, here), here.state, ())
        if tried >= budget:
            return _failure(None, operations, best, tried)
        for n in reversed(_next(operations, here.done)):
            state = after(here.state, operations[n])
            if state is not None:
                stack.append(_settled(operations, here.done | 1 << n, state, (n, here.taken)))
    return _failure(False, operations, best, tried)


Taken = tuple[int, "Taken"] | None


class _Configuration(NamedTuple):
    """The set of taken operations (one bit each), the resulting content of the register, and their order (a list, the last one
    first).
    """

    done: int
    state: State
    taken: Taken


def after(state: State, operation: Operation) -> State | None:
    """The state after the operation, or None if its answer is impossible in this state."""
    expected = operation.expect is None or operation.expect == state.version
    if operation.answer == "lost race":
        return None if expected else state
    if operation.kind == "get":
        seen = NOTHING if operation.version is None else State(operation.version, operation.value)
        return state if seen == state or operation.answer == "unknown" else None
    if not expected:
        return None
    if operation.kind == "delete":
        return NOTHING
    version = state.version + 1  # ABSENT is -1, so a new record begins at 0
    if operation.answer == "done" and operation.version != version:
        return None
    return State(version, operation.value)


def _settled(operations: Sequence[Operation], done: int, state: State, taken: Taken) -> _Configuration:
    """Takes all next operations that fit and change nothing: if any order exists, one that takes them now exists."""
    found = True
    while found:
        found = False
        for n in _next(operations, done):
            if operations[n].answer != "unknown" and after(state, operations[n]) == state and _changes_nothing(operations[n]):
                done |= 1 << n
                taken = (n, taken)
                found = True
    return _Configuration(done, state, taken)


def _changes_nothing(operation: Operation) -> bool:
    return operation.kind == "get" or operation.answer == "lost race"


def _next(operations: Sequence[Operation], done: int) -> list[int]:
    """The operations not yet taken that began before every other operation not yet taken had ended."""
    found: list[int] = []
    first_end = math.inf
    n = (~done & (done + 1)).bit_length() - 1  # the lowest operation not yet taken
    while n < len(operations) and operations[n].began <= first_end:
        if not done >> n & 1:
            found.append(n)
            first_end = min(first_end, operations[n].ended)
        n += 1
    return [n for n in found if operations[n].began <= first_end]


def _order(operations: Sequence[Operation], here: _Configuration) -> tuple[Operation, ...]:
    order: list[Operation] = []
    taken: Taken = here.taken
    while taken:
        n, taken = taken
        order.append(operations[n])
    return tuple(reversed(order))


def _failure(linearizable: bool | None, operations: Sequence[Operation], best: _Configuration, tried: int) -> Verdict:
    stuck = tuple(operations[n] for n in _next(operations, best.done))
    return Verdict(linearizable, tried, _order(operations, best), best.state, stuck)


def _line(operation: Operation) -> str:
    ended = "..." if math.isinf(operation.ended) else f"{operation.ended:.6f}"
    return f"{operation.began:.6f} to {ended} {operation.actor}: {operation.label()}"
