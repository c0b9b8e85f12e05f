"""Asks a broker about several segments at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from pulsar_protocol.retries import PATIENCE_SECONDS, repeat

T = TypeVar("T")
AT_ONCE: Final = 8


def each(names: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
    """Call `ask` for each name, with several names at the same time, and return the answers by name. A call is repeated while the
    broker is away or busy, for at most `PATIENCE_SECONDS`.
    """

    def patiently(name: str) -> T:
        return repeat(lambda left: ask(name), PATIENCE_SECONDS, stop=threading.Event())

    listed = sorted(names)
    if len(listed) < 2:
        return {name: patiently(name) for name in listed}
    with ThreadPoolExecutor(min(AT_ONCE, len(listed))) as threads:
        return dict(zip(listed, threads.map(patiently, listed), strict=True))
