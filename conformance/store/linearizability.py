"""A checker that decides whether a recorded history of one key is linearizable. The key is a register with versions. Its operations
are get, put and delete, with or without an expected version.

The search is that of Wing and Gong, with Lowe's cache of visited states. It puts the operations into an order, one after the other.
A remaining operation may come next if it began before every other remaining operation ended, and if its answer fits the state of
the register. If the search reaches the same state again after the same set of operations, it does not continue there.

To shorten the search, an operation that fits and changes nothing is taken at once. An operation without an answer may be taken at
any time after it began, or never. See Wing and Gong, "Testing and verifying concurrent objects" (1993), and Lowe, "Testing for
linearizability" (2017).
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
"""Maximum number of configurations (`_Configuration`) that the search tries before it gives up."""


class State(NamedTuple):
    """The content of the register. `version`: counts the puts of the current record from 0, and is ABSENT without a record."""

    version: int
    value: str | None


NOTHING = State(ABSENT, None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check.

    `linearizable`: None if the search gave up. `tried`: the number of configurations tried. `order`: the operations of the best
    attempt, which is the longest order found. `state`: the register after these operations. `stuck`: after `order`, one of these
    operations would have to come next. None of them fits `state`, unless the search gave up. `stuck` is empty if the history is
    linearizable.
    """

    linearizable: bool | None
    tried: int
    order: tuple[Operation, ...]
    state: State
    stuck: tuple[Operation, ...]

    def story(self, history: Sequence[Operation], *, last: int = 8) -> str:
        """Return an explanation for people: the last operations of the best attempt, and the operations that did not fit after
        them.
        """
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
        """Return the operations near the failure, for a timeline."""
        wrong = set(self.stuck)
        near = sorted({*self.order[-around:], *wrong}, key=lambda operation: operation.began)
        return tuple(
            Span(o.actor, o.label(), o.began, None if math.isinf(o.ended) else o.ended, wrong=o in wrong) for o in near or history
        )


def check(history: Sequence[Operation], *, initial: State = NOTHING, budget: int = BUDGET) -> Verdict:
    """Decide whether there is an order of the operations that explains all answers, if each operation takes effect between its
    beginning and its end.
    """
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
    """A state of the search. `done`: the operations taken so far, one bit each. `state`: the register after these operations.
    `taken`: the order of these operations, as a linked list that begins with the last one.
    """

    done: int
    state: State
    taken: Taken


def after(state: State, operation: Operation) -> State | None:
    """Return the state after the operation, or None if its answer is impossible in this state."""
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
    """Take all next operations that fit and change nothing. If some order explains all answers, an order that takes these
    operations now does so, too.
    """
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
    """Return the operations not yet taken that began before the end of every other operation not yet taken."""
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
