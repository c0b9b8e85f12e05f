"""A request is repeated as long as its error may pass and its time is not over, and no longer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_protocol.errors import ConnectionLost, PulsarError, TimedOut, TopicMissing, broker_error
from pulsar_protocol.retries import growing, passes, repeat

BUSY = broker_error(6, "busy", "lookup")
LOST = ConnectionLost("lost", advice="again")


def none() -> Iterator[float]:
    return itertools.repeat(0.0)


class Calls:
    """A function that raises the given errors, one in each call. The calls after them return how many calls there were."""

    def __init__(self, *errors: PulsarError) -> None:
        self.errors, self.left = list(errors), list[float]()

    def __call__(self, left: float) -> int:
        self.left.append(left)
        if len(self.left) <= len(self.errors):
            raise self.errors[len(self.left) - 1]
        return len(self.left)


def test_it_is_repeated_until_it_succeeds_with_the_time_that_is_left() -> None:
    calls = Calls(BUSY, LOST, BUSY)
    assert repeat(calls, 5.0, pauses=none, stop=threading.Event()) == 4
    assert calls.left == sorted(calls.left, reverse=True)
    assert 0 < calls.left[-1] < calls.left[0] <= 5.0


@pytest.mark.parametrize("error", [TopicMissing("none", advice=""), TimedOut("late", advice=""), broker_error(3, "", "")])
def test_an_error_that_does_not_pass_is_raised_at_once(error: PulsarError) -> None:
    calls = Calls(BUSY, error)
    with pytest.raises(type(error)):
        repeat(calls, 5.0, pauses=none, stop=threading.Event())
    assert len(calls.left) == 2


def test_the_last_error_is_raised_when_the_next_pause_would_pass_the_deadline() -> None:
    calls = Calls(BUSY, LOST, BUSY)
    with pytest.raises(ConnectionLost):
        repeat(calls, 5.0, pauses=lambda: iter([0.0, 5.0]), stop=threading.Event())
    assert len(calls.left) == 2


def test_the_end_of_the_client_ends_the_pause() -> None:
    stop = threading.Event()
    stop.set()
    calls = Calls(BUSY)
    with pytest.raises(PulsarError, match="busy"):
        repeat(calls, 1000.0, pauses=lambda: itertools.repeat(999.0), stop=stop)
    assert len(calls.left) == 1


def test_a_request_may_name_the_only_error_after_which_it_is_repeated() -> None:
    calls = Calls(broker_error(20, "", ""), LOST)
    with pytest.raises(ConnectionLost):
        repeat(calls, 5.0, pauses=none, stop=threading.Event(), when=lambda error: error.code == 20)
    assert len(calls.left) == 2


@given(chances=st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_pauses_grow_to_two_seconds_and_are_never_shorter_than_half(chances: list[float]) -> None:
    drawn = iter(chances)
    whole = [min(2.0, 0.1 * 2**number) for number in range(12)]
    found = list(itertools.islice(growing(lambda: next(drawn)), 12))
    assert all(pause / 2 - 1e-9 <= one <= pause for one, pause in zip(found, whole, strict=True))


def test_the_codes_after_which_the_same_request_may_succeed() -> None:
    assert [code for code in range(26) if passes(broker_error(code, "", ""))] == [1, 2, 5, 6, 7, 8, 14, 16, 20]
