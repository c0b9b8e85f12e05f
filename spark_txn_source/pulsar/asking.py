"""Asks a broker about several segments at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from pulsar_protocol.retries import repeat

T = TypeVar("T")
AT_ONCE: Final = 8
PATIENCE_SECONDS: Final = 60.0
"""The time after which a plan fails if a broker is away."""


def each(names: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
    """Ask about each name, several at once, and return the answers. Questions are repeated while the broker is away or busy."""

    def patiently(name: str) -> T:
        return repeat(lambda left: ask(name), PATIENCE_SECONDS, stop=threading.Event())

    listed = sorted(names)
    if len(listed) < 2:
        return {name: patiently(name) for name in listed}
    with ThreadPoolExecutor(min(AT_ONCE, len(listed))) as threads:
        return dict(zip(listed, threads.map(patiently, listed), strict=True))
