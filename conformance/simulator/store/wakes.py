"""Watches that are as unreliable as the contract allows: they wake soon, late, twice, or never (protocol.md section 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import Watch


@dataclass
class Watches:
    """The watches of a world. `delays`: returns the delays of one wake-up in steps: none (the wake-up is lost), one, or several.
    `later`: runs a function after a number of steps.
    """

    delays: Callable[[], tuple[int, ...]]
    later: Callable[[Callable[[], None], int], None]
    woken: int = 0
    lost: int = 0
    open: dict[_Watch, KeyRange] = field(default_factory=dict)

    def add(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        within = target.range() if isinstance(target, Prefix) else KeyRange(target.path, target.path, target.partition)
        watch = _Watch(self, wake)
        self.open[watch] = within
        return watch

    def changed(self, key: Key) -> None:
        for watch, within in self.open.items():
            if within.first <= key.path <= within.last and key.partition == within.partition:
                delays = self.delays()
                self.lost += not delays
                for delay in delays:
                    self.later(watch.wake, delay)

    def close(self, watch: _Watch) -> None:
        self.open.pop(watch, None)


class _Watch(Watch):
    def __init__(self, watches: Watches, wake: Callable[[], None]) -> None:
        self._watches, self._wake = watches, wake

    def wake(self) -> None:
        """Call the listener, also after `close`, since a wake-up may have been on its way."""
        self._watches.woken += 1
        self._wake()

    def close(self) -> None:
        self._watches.close(self)
