"""Observe the store's clock and this machine's clocks, and record the observation in `/sweep/time`. `metadata.rules.elapsed` has
the rules.
"""

from __future__ import annotations

from functools import partial

from metadata.common.clock import Clock, boot_id, running_ms
from metadata.common.errors import BadVersion, UnknownOutcome
from metadata.records import paths
from metadata.rules.elapsed import SPACING, Clocks, SeenTime, looked
from metadata.store.contract import ABSENT, MetadataStore, View, decide, time_ms, until
from metadata.store.contract import look as record_at

OFTEN_MS = 60_000
"""Maximum age (ms) of an observation that is used again. One observation a minute suffices for age limits of hours."""


def look(store: MetadataStore, clock: Clock) -> SeenTime:
    """Observe all clocks now and record the observation. Return the recorded `SeenTime`, which includes the observation."""

    def body(view: View) -> SeenTime | None:
        record = view.get(paths.SWEEP_TIME)
        numbers = view.keys(paths.LOG.range())
        number = int(numbers[-1][-20:]) if numbers else 0
        now = Clocks(view.now_ms(), clock.now_ms(), running_ms(clock), boot_id())
        seen = looked(None if record is None else SeenTime.of(record), now, number)
        try:
            store.put(paths.SWEEP_TIME, seen.to_bytes(), expect=ABSENT if record is None else record)
        except (BadVersion, UnknownOutcome):
            return None
        return seen

    return until(partial(decide, store, body))


def seen_time(store: MetadataStore, clock: Clock, *, within_ms: int = OFTEN_MS) -> SeenTime:
    """Return the recorded `SeenTime` if its last observation is less than `within_ms` old by the store's time. Otherwise observe
    all clocks now, and return the new `SeenTime`.
    """
    record = record_at(store, paths.SWEEP_TIME)
    if record is not None:
        seen = SeenTime.of(record)
        if 0 <= time_ms(store) - seen.store_ms < within_ms:
            return seen
    return look(store, clock)


def seen_for(store: MetadataStore, clock: Clock, keep_ms: int) -> SeenTime:
    """Return a `SeenTime` that is fresh enough for the age limit `keep_ms`. Its last observation is less than 1/SPACING of the
    limit old, and less than a minute old.
    """
    return seen_time(store, clock, within_ms=min(OFTEN_MS, keep_ms // SPACING))
