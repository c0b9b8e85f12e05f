"""Tests of the linearizability checker with correct and wrong histories, and with random histories of a correct register."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.store.history import Operation, random_operations, recorded
from conformance.store.linearizability import NOTHING, State, after, check
from metadata.common.clock import SystemClock
from metadata.store.contract import ABSENT, ANY
from metadata.store.memory import MemoryStore


def put(began: float, ended: float, value: str, version: int, expect: int | None = ANY) -> Operation:
    return Operation("w", "/k", "put", began, ended, "done", expect, value, version)


def lost_put(began: float, value: str, expect: int | None = ANY) -> Operation:
    return Operation("w", "/k", "put", began, math.inf, "unknown", expect, value)


def get(began: float, ended: float, value: str | None, version: int | None = None) -> Operation:
    return Operation("r", "/k", "get", began, ended, "done", value=value, version=version)


def delete(began: float, ended: float, expect: int | None = ANY) -> Operation:
    return Operation("w", "/k", "delete", began, ended, "done", expect)


def refused(began: float, ended: float, expect: int) -> Operation:
    return Operation("w", "/k", "put", began, ended, "lost race", expect, "never")


GOOD = {
    "nothing at all": [],
    "one after the other": [put(0, 1, "a", 0), get(2, 3, "a", 0), put(4, 5, "b", 1), get(6, 7, "b", 1)],
    "a read beside a write sees the old value": [put(0, 1, "a", 0), put(2, 5, "b", 1), get(3, 4, "a", 0)],
    "a read beside a write sees the new value": [put(0, 1, "a", 0), put(2, 5, "b", 1), get(3, 4, "b", 1)],
    "two writes at once, in the other order": [put(0, 9, "a", 1), put(1, 8, "b", 0), get(10, 11, "a", 1)],
    "they touch at one moment": [put(0, 1, "a", 0), get(1, 2, None)],
    "versions restart": [put(0, 1, "a", 0), delete(2, 3), put(4, 5, "b", 0, ABSENT), get(6, 7, "b", 0)],
    "a delete of nothing": [delete(0, 1), get(2, 3, None)],
    "a lost race": [put(0, 1, "a", 0), put(2, 3, "b", 1, 0), refused(4, 5, 0), refused(6, 7, ABSENT)],
    "a race lost to a write that is still under way": [put(0, 1, "a", 0), put(2, 9, "b", 1, 0), refused(3, 4, 0)],
    "a lost reply that was done": [put(0, 1, "a", 0), lost_put(2, "b"), get(3, 4, "b", 1)],
    "a lost reply that was not done": [put(0, 1, "a", 0), lost_put(2, "b"), get(3, 4, "a", 0), put(5, 6, "c", 1, 0)],
    "a lost reply that is done late": [put(0, 1, "a", 0), lost_put(2, "b"), get(3, 4, "a", 0), get(5, 6, "b", 1)],
    "two lost replies": [lost_put(0, "a"), lost_put(1, "b"), get(2, 3, "b", 0), get(4, 5, "a", 1)],
}
BAD = {
    "a value from nowhere": [get(0, 1, "a", 0)],
    "a stale read": [put(0, 1, "a", 0), put(2, 3, "b", 1), get(4, 5, "a", 0)],
    "new, then old": [put(0, 1, "a", 0), put(2, 9, "b", 1), get(3, 4, "b", 1), get(5, 6, "a", 0)],
    "a lost update": [put(0, 1, "a", 0), put(2, 9, "b", 1, 0), put(3, 8, "c", 1, 0)],
    "a write that is gone": [put(0, 1, "a", 0), get(2, 3, None)],
    "a wrong version": [put(0, 1, "a", 0), put(2, 3, "b", 3)],
    "versions that do not restart": [put(0, 1, "a", 0), delete(2, 3), put(4, 5, "b", 1)],
    "two creations": [put(0, 9, "a", 0, ABSENT), put(1, 8, "b", 0, ABSENT), get(10, 11, "a", 0)],
    "a race lost to nobody": [put(0, 1, "a", 0), refused(2, 3, 0)],
    "a delete of a version that is not there": [put(0, 1, "a", 0), delete(2, 3, 1)],
    "two deletes of one version": [put(0, 1, "a", 0), delete(2, 9, 0), delete(3, 8, 0)],
    "a lost reply that is done, undone and done": [put(0, 1, "a", 0), lost_put(2, "b"), get(3, 4, "b", 1), get(5, 6, "a", 0)],
    "a lost reply that is done twice": [lost_put(0, "a"), get(1, 2, "a", 0), get(3, 4, "a", 1)],
    "a lost reply that is done before it was sent": [get(0, 1, "a", 0), lost_put(2, "a")],
    "a lost reply with the wrong version": [put(0, 1, "a", 0), lost_put(2, "b", 7), get(3, 4, "b", 1)],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_linearizable_history_passes(name: str) -> None:
    assert check(GOOD[name]).linearizable is True


@pytest.mark.parametrize("name", BAD)
def test_a_non_linearizable_history_fails(name: str) -> None:
    verdict = check(BAD[name])
    assert verdict.linearizable is False
    assert verdict.stuck
    assert any(span.wrong for span in verdict.spans(BAD[name]))
    assert "does not" in verdict.story(BAD[name])


def test_a_failure_shows_the_longest_order_and_the_rest() -> None:
    assert check(BAD["a stale read"]).story(BAD["a stale read"]).splitlines() == [
        "2 of 3 operations on /k fit one order; then it holds 'b' with version 1",
        "  fits: 0.000000 to 1.000000 w: put 'a' -> version 0",
        "  fits: 2.000000 to 3.000000 w: put 'b' -> version 1",
        "  does not: 4.000000 to 5.000000 r: get -> 'a', version 0",
    ]


def test_a_search_beyond_its_budget_reports_undecided() -> None:
    """The history has twelve concurrent writes and a read that no order explains. To find this out needs more steps than the budget
    of the search. So the result is undecided.
    """
    writes = [Operation("w", "/k", "put", 0, 10, "done", ANY, str(n), None) for n in range(12)]
    history = [*[replace(write, answer="unknown", ended=math.inf) for write in writes], get(11, 12, "x", 0)]
    verdict = check(history, budget=500)
    assert verdict.linearizable is None
    assert verdict.tried == 500
    assert "Not decided" in verdict.story(history)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Return a random history of a correct register. Operation n takes effect at the time n, between its beginning and its end. The
    replies of some operations are lost, and some of these operations have no effect.
    """
    state, history = NOTHING, []
    for n in range(1, draw(st.integers(1, 40)) + 1):
        began, ended = n - draw(st.floats(0, 4)), n + draw(st.floats(0, 4))
        kind = draw(st.sampled_from(["get", "put", "put", "delete"]))
        expect = None if kind == "get" else draw(st.sampled_from([ANY, ABSENT, state.version, state.version, state.version + 1]))
        lost = kind != "get" and draw(st.integers(0, 9)) == 0
        value = f"v{n}" if kind == "put" else None
        asked = Operation(f"a{n % 3}", "/k", kind, began, math.inf, "unknown", expect, value)
        if lost:
            done = after(state, asked) if draw(st.booleans()) else None
            history.append(asked)
            state = state if done is None else done
        elif kind == "get":
            seen = (None, None) if state == NOTHING else (state.value, state.version)
            history.append(replace(asked, ended=ended, answer="done", value=seen[0], version=seen[1]))
        elif expect is not ANY and expect != state.version:
            history.append(replace(asked, ended=ended, answer="lost race"))
        elif kind == "delete":
            history.append(replace(asked, ended=ended, answer="done"))
            state = NOTHING
        else:
            state = State(state.version + 1, value)
            history.append(replace(asked, ended=ended, answer="done", version=state.version))
    return history


@given(histories(), st.randoms())
def test_a_history_of_a_real_register_passes_in_any_order_of_recording(history: list[Operation], random: Random) -> None:
    shuffled = random.sample(history, len(history))
    verdict = check(shuffled)
    assert verdict.linearizable is True
    assert all(operation in verdict.order for operation in history if operation.answer != "unknown")


@given(histories(), st.data())
def test_a_read_of_an_unwritten_value_fails(history: list[Operation], data: st.DataObject) -> None:
    history = [*history, get(50, 51, "mutated", 0)] if not any(o.kind == "get" for o in history) else history
    place = data.draw(st.sampled_from([n for n, o in enumerate(history) if o.kind == "get"]))
    history[place] = replace(history[place], value="mutated", version=history[place].version or 0)
    assert check(history).linearizable is False


@given(histories())
def test_a_read_that_goes_back_in_time_fails(history: list[Operation]) -> None:
    """After all operations of the history have ended, the key is deleted and put twice, and both values are read. A further read
    then returns the value of the first put. The checker rejects this history.
    """
    answered = [o for o in history if o.answer != "unknown"]
    lost_ones_mattered = not check(answered).linearizable
    before = [] if lost_ones_mattered else answered
    tail = [delete(50, 51), put(52, 53, "one", 0), get(54, 55, "one", 0), put(56, 57, "two", 1), get(58, 59, "two", 1)]
    assert check([*before, *tail]).linearizable is True
    assert check([*before, *tail, get(60, 61, "one", 0)]).linearizable is False


def test_recorded_operations_are_linearizable_and_survive_json() -> None:
    """Operations recorded on a real store are linearizable, and JSON keeps them. An operation whose steps end with "void" had no
    effect, and is not in the history.
    """
    steps = list(random_operations(MemoryStore(), "a", Random(1), SystemClock(), 200))
    history = recorded(steps)
    assert len(history) == 200
    assert {o.kind for o in history} == {"get", "put", "delete"}
    assert {o.answer for o in history} == {"done", "lost race"}
    for key in {o.key for o in history}:
        assert check([o for o in history if o.key == key]).linearizable
    assert [Operation.from_json(o.to_json()) for o in history] == history
    begun = [operation for step, operation in steps if step == "begun"]
    assert recorded([("begun", begun[0]), ("void", begun[0]), ("begun", begun[1])]) == [begun[1]]
    assert Operation.from_json(begun[1].to_json()).ended == math.inf
