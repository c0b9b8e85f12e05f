"""Repeats requests until they succeed, fail for good, or their time is over."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from pulsar_protocol.errors import ConnectionLost, PulsarError, Retriable, Unreachable

Result = TypeVar("Result")
Pauses = Callable[[], Iterator[float]]
"""Returns the pauses, in seconds, before the first, second and all later repetitions of one request. The iterator never ends."""
_FIRST: Final = 0.1
_LONGEST: Final = 2.0
PATIENCE_SECONDS: Final = 60.0
"""How long reads, and the requests of subscriptions, are repeated while a broker is away."""


def growing(chance: Callable[[], float] = random.random) -> Iterator[float]:
    """Yield pauses that double up to two seconds. Each pause is shortened by a random share of up to a half, so that clients do not
    repeat their requests at the same time.
    """
    pause = _FIRST
    while True:
        yield pause * (1 - chance() / 2)
        pause = min(_LONGEST, 2 * pause)


def passes(error: PulsarError) -> bool:
    """Return whether the same request may succeed later: the broker said so, or the connection was lost. Return False for an
    Unreachable, because its address may be wrong.
    """
    return isinstance(error, Retriable | ConnectionLost) and not isinstance(error, Unreachable)


def repeat(
    call: Callable[[float], Result],
    seconds: float,
    *,
    pauses: Pauses = growing,
    stop: threading.Event,
    when: Callable[[PulsarError], bool] = passes,
) -> Result:
    """Call `call` until it succeeds, and return its result. `call` gets the seconds that are left. After an error for which `when`
    is true, `call` is repeated, so it must be safe to repeat. Such an error is raised only when `seconds` are over, or if `stop` is
    set. All other errors are raised at once.
    """
    deadline = time.monotonic() + seconds
    for pause in pauses():
        try:
            return call(max(0.0, deadline - time.monotonic()))
        except PulsarError as error:
            if not when(error) or time.monotonic() + pause >= deadline or stop.wait(pause):
                raise
    raise AssertionError("The pauses of a request have an end.")
