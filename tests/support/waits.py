"""A clock whose time passes only by waiting."""

from __future__ import annotations


class Waits:
    """`pause` and `now`, as the product takes them. `seconds`: the time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def pause(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> float:
        return self.seconds
