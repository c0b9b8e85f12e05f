"""The live log of a process: concurrent listings by threads lose no entry."""

from __future__ import annotations

from greenlet import getcurrent, greenlet

from conformance.simulator.store.faults import Fate, GatedStore
from metadata.log.live_log import Listing, LiveLog
from metadata.records.paths import LOG
from metadata.records.records import Registration
from metadata.store.contract import MetadataStore
from metadata.store.memory import MemoryState

NOW_MS = 1_700_000_000_000


class Clock:
    """A clock whose time never changes."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def stopping(state: MemoryState, at: str) -> MetadataStore:
    """Return a session that suspends its thread once, before the first step of the kind `at`."""
    hub, kinds = getcurrent(), [at]

    def gate(kind: str, what: str) -> Fate:
        if kind in kinds:
            kinds.clear()
            hub.switch()
        return Fate.GO

    return GatedStore(state, Clock(), gate, slow=lambda: True)


def append(state: MemoryState) -> None:
    GatedStore(state, Clock()).append(LOG, Registration(publish_ms=1).to_bytes())


def numbers(listing: Listing) -> list[int]:
    return [entry.number for entry in listing.entries]


def _listing(log: LiveLog, store: MetadataStore) -> greenlet:
    return greenlet(lambda: log.list(store.view()))


def test_an_older_listing_takes_nothing_out_of_a_newer_one() -> None:
    """Three threads list the log while it grows: the first lists one entry, the second two, the third three. The first and the
    third resume after the second has finished. Each gets the entries that it has listed, and a later list has all three.
    """
    state, log = MemoryState(), LiveLog()
    append(state)
    log.list(GatedStore(state, Clock()).view())
    oldest = _listing(log, stopping(state, "reply"))
    oldest.switch()
    append(state)
    assert numbers(log.list(GatedStore(state, Clock()).view())) == [1, 2]
    append(state)
    newest = _listing(log, stopping(state, "get"))
    newest.switch()
    assert numbers(oldest.switch()) == [1]
    assert numbers(newest.switch()) == [1, 2, 3]
    assert numbers(log.list(GatedStore(state, Clock()).view())) == [1, 2, 3]
