"""Watches. The contract permits that a wake-up is lost, repeated or merged with another. So a case repeats a change until the watch
wakes, and counts the lost wake-ups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import equal, holds
from metadata.records.paths import LOG, Key, Prefix
from metadata.store.contract import MetadataStore

cases = Cases("watches", "watch")

A = Key("/things/a", "p")
TRIES = 5


def _wakes(area: Area, woken: threading.Event, change: Callable[[], object], what: str) -> None:
    """Repeat the change until the watch wakes, at most TRIES times. Raises ContractBroken if no change wakes the watch. With such a
    watch a waiter would always wait until its timeout.
    """
    each = min(area.sizes.wake_patience, area.sizes.patience) / TRIES
    for _ in range(TRIES):
        woken.clear()
        area.store.view().get(A)  # the waiter reads here, and only a change after its read must wake it
        change()
        if woken.wait(each):
            return
        area.figures["wake-ups lost"] = area.figures.get("wake-ups lost", 0) + 1
    holds(False, f"{what} wakes within {TRIES} tries of {each:g} s each")


@cases.add
def a_change_of_the_key_wakes(area: Area) -> None:
    """Creating, changing or deleting the record in another session wakes the watch; a get after the wake-up returns the change."""
    other, woken = area.open(), threading.Event()
    watch = area.store.watch(A, woken.set)
    for n in range(3):
        _wakes(area, woken, lambda: other.put(A, b"x"), "a put")
        holds(area.store.view().get(A) is not None, f"a read after the wake-up sees put {n}")

        def delete() -> None:
            other.put(A, b"y")
            other.delete(A)

        _wakes(area, woken, delete, "a delete")
    watch.close()


@cases.add
def a_change_below_the_prefix_wakes(area: Area) -> None:
    """An append by another session wakes a watch of the sequence, also the append of its first record."""
    other, woken = area.open(), threading.Event()
    watch = area.store.watch(LOG, woken.set)
    for n in range(1, 5):
        _wakes(area, woken, lambda: other.append(LOG, b"x"), f"append {n}")
        holds(len(area.store.view().keys(LOG.range())) >= n, f"a read after the wake-up sees {n} records")
    watch.close()


@cases.add
def a_closed_watch_is_silent(area: Area) -> None:
    """A watch never wakes after its `close`, which may be called twice. Other watches of the same key still wake."""
    silent, woken, other = threading.Event(), threading.Event(), area.open()
    watch = area.store.watch(A, silent.set)
    watch.close()
    watch.close()
    silent.clear()
    open_watch = area.store.watch(A, woken.set)
    _wakes(area, woken, lambda: other.put(A, b"x"), "a put, for the open watch,")
    holds(not silent.is_set(), "the closed watch did not wake")
    open_watch.close()


@cases.add
def many_watches_of_one_session(area: Area) -> None:
    """Several watches of one session, on one key and on several keys, all wake."""
    other = area.open()
    prefix = Prefix("/watched/seq", "w")
    events = [(target, threading.Event()) for target in (A, A, Key("/watched/b", ""), prefix, prefix)]
    watches = [area.store.watch(target, event.set) for target, event in events]
    for target, event in events:
        _wakes(area, event, lambda target=target: _change(other, target), f"a change of {target.path}")  # type: ignore[misc]
    for watch in watches:
        watch.close()


def _change(store: MetadataStore, target: Key | Prefix) -> None:
    if isinstance(target, Prefix):
        store.append(target, b"x")
    else:
        store.put(target, b"x")


@cases.add
def a_follower_that_trusts_only_what_it_reads_misses_nothing(area: Area) -> None:
    """A follower reads the log, sleeps until a wake-up or a short timeout, and reads again. It gets every record once, in order."""
    reader, woken, seen = area.open(), threading.Event(), list[str]()
    watch = reader.watch(LOG, woken.set)
    each, patience = 10, area.sizes.patience

    def follow() -> None:
        began = area.clock.monotonic()
        while len(seen) < each * area.sizes.actors:
            holds(area.clock.monotonic() - began < patience, f"the follower has read all within {patience:g} s, not {len(seen)}")
            woken.clear()
            seen.extend(reader.view().keys(LOG.range(int(seen[-1][-20:]) + 1 if seen else 0)))
            woken.wait(0.2)

    follower = _Thread(follow)
    made = [
        path for paths in area.at_once(lambda store, _: [store.append(LOG, b"x").key.path for _ in range(each)]) for path in paths
    ]
    follower.result(patience * 2)
    equal(seen, sorted(made), "what the follower read")
    watch.close()


class _Thread(threading.Thread):
    """A thread that keeps its error. `result` waits for the thread and raises the error."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__(name="conformance-follower", daemon=True)
        self._act = act
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._act()
        except BaseException as error:
            self._error = error

    def result(self, seconds: float) -> None:
        self.join(seconds)
        holds(not self.is_alive(), "the follower ends")
        if self._error:
            raise self._error
