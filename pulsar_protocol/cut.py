"""Finds the cut of a segment, and other positions, by probes (`probing`). All entries up to the cut are decided.

A probe is a non-durable subscription with one permit. The broker forgets it when it is closed.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self

from pulsar_protocol.channel import ANSWER_SECONDS, Channel
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.entries import parse
from pulsar_protocol.errors import TimedOut
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.probing import Bounds, following

WAIT_SECONDS: Final = 0.25
"""How long a round of probes waits for the answer to its highest probe. Without that answer, the client also probes an entry that
is known to be decided, because the broker delivers such an entry. When this probe is answered, the round ends, and the probes that
have no answer count as probes without a delivery.
"""
PATIENCE_SECONDS: Final = 2.0
"""How long a round waits further for the probe of a known entry, which retention may have removed. If no entry is known to be
decided, the round waits so long for its lowest probe. It is also the longest wait for the end of a sealed segment.
"""
ONCE_PATIENCE_SECONDS: Final = 10.0
"""The same for a cut that is found once, such as the end of a batch. A stream reads in its next micro-batch what a slow broker has
not shown. A batch would not read it at all.
"""
PROBES: Final = 8
"""How many positions one round of a search probes at the same time. The first round probes two."""
_LATEST: Final = Position((1 << 63) - 1, (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Found:
    """The first entry that the broker delivered at or after a position. `count`: how many messages it has. `size`: its size in
    bytes.
    """

    position: Position
    publish_ms: int
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut of a segment. `position`: the last entry that may be read (EARLIEST: none). All entries up to it are decided.
    `last`: the last entry of the segment, or the last one that is known if `whole` is False. `whole`: whether all entries up to
    `last` are decided. `sealed`: whether the segment was sealed before the broker was asked for `last`.
    """

    position: Position
    last: Position
    whole: bool
    sealed: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the segment will have no entry after `position`, except those of aborted transactions."""
        return self.whole and self.sealed


class Probe:
    """One probe: a subscription that asks for one entry at or after the position `at`. `close` ends it. `broker`: a connection to
    the broker that has the segment.
    """

    def __init__(self, client: PulsarClient, broker: Channel, topic: str, at: Position) -> None:
        self.at = at
        self._consumer = Consumer.temporary(client, topic, at, else_earliest=at == EARLIEST, broker=broker)
        self.found: Found | None = None
        self.at_end = False
        """Whether the broker has answered that the segment is sealed, and has no entries from `at` on except those of aborted
        transactions.
        """

    def begins(self) -> Position:
        """Return the position just before the place where the probe begins. It does not matter which transactions are decided."""
        return self._consumer.position

    def ask(self) -> Self:
        self._consumer.permit(1)
        return self

    def take(self, seconds: float) -> bool:
        """Wait for the answer to the probe. Return whether it came within `seconds`. Raises ConnectionLost."""
        deadline = time.monotonic() + seconds
        while self.found is None and not self.at_end:
            try:
                event = self._consumer.next(deadline - time.monotonic())
            except queue.Empty:
                return False
            if event.name == "reached_end_of_topic":
                self.at_end = True
                continue
            position = Position.of(event.body.message_id)
            if position >= self.at:
                entry = parse(event.entry)
                self.found = Found(position, entry.metadata.publish_time, entry.count, len(event.entry))
        return True

    def close(self) -> None:
        self._consumer.close()


class Segment:
    """A segment or topic in which positions are searched. One thread at a time may use it."""

    def __init__(self, client: PulsarClient, topic: str, patience: float = PATIENCE_SECONDS) -> None:
        """`patience`: how long a cut waits for a slow broker, in seconds (`PATIENCE_SECONDS`, `ONCE_PATIENCE_SECONDS`)."""
        self.topic, self._client, self._patience = topic, client, patience
        self._broker = client.broker_of(topic)

    def last(self) -> Position:
        """Return the position of the last entry of the segment, decided or not. The entry id is -1 if the last ledger has no entry
        yet.
        """
        return self._begins(_LATEST)

    def before_first(self) -> Position:
        """Return the position before the first entry that retention has left."""
        return self._begins(EARLIEST)

    def is_empty(self, last: Position) -> bool:
        """Return whether the segment has no entry. `last`: what `last()` has returned."""
        return last.entry < 0 and self.before_first() == last

    def is_removed(self, last: Position) -> bool:
        """Return whether no entry up to `last` is left: retention has removed them, or the segment never had one. `last`: what
        `last()` has returned. A broker that opens a segment again may name a last entry that it has removed.
        """
        return self.before_first() >= last

    def before(self, position: Position) -> Position:
        """Return the position of the last entry before `position`, decided or not. The entry id is -1 if there is no such entry.
        `position` must be at or before the last entry of the segment.
        """
        return self._begins(position)

    def first_after(self, position: Position, seconds: float = ANSWER_SECONDS) -> Found:
        """Return the first entry after a position. The position must be below the cut. Raises TimedOut if no entry comes."""
        probe = self._at(following(position))
        try:
            probe.ask().take(seconds)
        finally:
            probe.close()
        if probe.found is None:
            raise TimedOut(
                f"{self.topic}: no entry after {position.text} came within {seconds:g} s.",
                advice="Retention may have removed it, or the broker is slow: read again.",
            )
        return probe.found

    def cut(self, floor: Position = EARLIEST, *, sealed: bool = False) -> Cut:
        """Return the cut. `floor`: an earlier cut, or EARLIEST. The cut that is returned is never below the floor. `sealed`:
        whether the segment is sealed. For a sealed segment, `whole` counts the entries of aborted transactions at its end as
        decided, too. If retention has removed all entries up to the last one, `whole` is true: no entry is left to wait for.
        """
        last = self.last()
        if last <= floor or (floor == EARLIEST and self.is_empty(last)):
            return Cut(floor, last, True, sealed)
        low = self._search(Bounds(floor, following(last)), _LATEST)
        whole = low >= last or (sealed and self._at_end(low)) or (low == floor and self.is_removed(last))
        return Cut(low, last, whole, sealed)

    def ends_at(self, position: Position) -> bool:
        """Return whether a sealed segment has no entry after a position, except those of aborted transactions. Return False if an
        entry after it is not decided.
        """
        last = self.last()
        if last <= position or self.is_empty(last):
            return True
        probe = self._at(following(position))
        try:
            probe.ask().take(self._patience)
            return probe.at_end
        finally:
            probe.close()

    def is_decided(self, position: Position, seconds: float) -> bool:
        """Return whether the broker shows within `seconds` that all entries up to a position are decided: it delivers the entry at
        the position or a later one, or the segment is sealed and has no entry from there on except those of aborted transactions.
        Return False at once if the segment has no entry there, or if retention has removed all its entries.
        """
        last = self.last()
        if position > last or self.is_removed(last):
            return False
        probe = self._at(position)
        try:
            return probe.ask().take(seconds)
        finally:
            probe.close()

    def last_read(self, decided: Position, floor: Position = EARLIEST) -> Position:
        """Return the position of the last entry at or below `decided` that is not of an aborted transaction. The caller knows that
        all entries up to `decided` are decided. `floor`: an earlier cut, or EARLIEST. The position is never below the floor.
        """
        if decided <= floor:
            return floor
        if decided.entry < 0 and floor == EARLIEST and self.before_first() >= decided:
            return floor
        if decided.entry >= 0 and self._delivers(decided):
            return decided
        return self._search(Bounds(floor, following(decided)), decided)

    def _delivers(self, position: Position) -> bool:
        """Return whether the broker delivers the entry at this position within `WAIT_SECONDS`."""
        probe = self._at(position)
        try:
            return probe.ask().take(WAIT_SECONDS) and probe.found is not None and probe.found.position == position
        finally:
            probe.close()

    def _search(self, bounds: Bounds, most: Position) -> Position:
        """Return the position of the last entry that the broker delivers between the bounds, and at or below `most`."""
        number = 2
        while not bounds.done:
            probes = self._probe(bounds.places(number), bounds.low).items()
            found = {at: one.found.position if one.found is not None else None for at, one in probes}
            bounds = bounds.learned({at: place if place is not None and place <= most else None for at, place in found.items()})
            number = PROBES
        return bounds.low

    def before_time(self, ms: int, cut: Position) -> Position:
        """Return the position of the last entry up to `cut` that was published before `ms` (EARLIEST: none). Clients set the
        publish times. If the times do not ascend, the search may return another entry.
        """
        bounds = Bounds(EARLIEST, following(cut))
        while cut != EARLIEST and not bounds.done:
            answers: dict[Position, Position | None] = {}
            for at in bounds.places(3):
                found = self._found(at)
                answers[at] = found.position if found.position <= cut and found.publish_ms < ms else None
            bounds = bounds.learned(answers)
        return bounds.low

    def _found(self, at: Position) -> Found:
        return self.first_after(EARLIEST if at == EARLIEST else Position(at.ledger, at.entry - 1))

    def _begins(self, at: Position) -> Position:
        probe = self._at(at)
        try:
            return probe.begins()
        finally:
            probe.close()

    def _at_end(self, cut: Position) -> bool:
        """Return whether a sealed segment has no entries after its cut, except those of aborted transactions."""
        ((_, probe),) = self._probe([following(cut)], cut).items()
        return probe.at_end

    def _probe(self, places: Sequence[Position], known: Position) -> dict[Position, Probe]:
        """Probe all these positions at the same time. After an answer to the highest probe, do not wait for the others, and neither
        if retention has removed all these positions. `known`: an entry that is known to be decided, or EARLIEST.
        """
        probes = self._asked(places)
        try:
            if not probes[-1].take(WAIT_SECONDS) and not self.is_removed(places[-1]):
                asked = time.monotonic()
                if known != EARLIEST:
                    probes += self._asked([known])
                control = probes[-1] if known != EARLIEST else probes[0]
                waited = time.monotonic() - asked if control.take(self._patience) else 0.0
                if waited > WAIT_SECONDS:  # the broker is slow, so the highest probe gets as long again
                    probes[len(places) - 1].take(waited)
            for probe in probes:
                probe.take(0.0)
            return {probe.at: probe for probe in probes[: len(places)]}
        finally:
            self._over(probes)

    def _asked(self, places: Sequence[Position]) -> list[Probe]:
        """Begin probes at all these positions at the same time. If one of them fails, end the others."""
        probes: list[Probe] = []
        failed: BaseException | None = None
        with ThreadPoolExecutor(len(places)) as threads:
            for future in [threads.submit(self._ask, at) for at in places]:
                error = future.exception()
                if error is None:
                    probes.append(future.result())
                failed = failed or error
        if failed is not None:
            self._over(probes)
            raise failed
        return probes

    def _ask(self, at: Position) -> Probe:
        return self._at(at).ask()

    def _at(self, at: Position) -> Probe:
        return Probe(self._client, self._broker, self.topic, at)

    def _over(self, probes: Sequence[Probe]) -> None:
        if probes:
            close: Callable[[Probe], None] = Probe.close
            with ThreadPoolExecutor(len(probes)) as threads:
                for _ in threads.map(close, probes):
                    continue
