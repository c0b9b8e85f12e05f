"""Judge layouts (invariants 12, 13). Active segments cover each hash value once, epochs rise, and sealed segments stay sealed."""

from __future__ import annotations

from conformance.history.findings import Findings
from conformance.history.format import Layout, Segment
from conformance.history.truth import Truth

RING = 0x10000


class Layouts:
    """Judges the layouts of all topics, in the order of the events."""

    def __init__(self, truth: Truth, found: Findings) -> None:
        self._truth, self._found = truth, found
        self._now: dict[str, Layout] = {}
        self._known: dict[str, Segment] = {}

    def layout(self, event: Layout) -> None:
        before = self._now.get(event.topic)
        self._now[event.topic] = event
        self._tiles(event)
        for gone in {s.name for s in before.segments} - {s.name for s in event.segments} if before is not None else ():
            self._truth.left.setdefault(gone, event.at)
        if before is not None:
            if event.epoch < before.epoch:
                self._bad(f"the epoch of {event.topic} went back from {before.epoch} to {event.epoch}", before, event)
            elif event.epoch == before.epoch and _shape(event) != _shape(before):
                self._bad(f"the segments of {event.topic} changed within epoch {event.epoch}", before, event)
        for segment in event.segments:
            seal = self._truth.seals.get(segment.name)
            if seal is not None and segment.sealed_at not in (None, seal):
                self._bad(f"{segment.name} is shown as sealed at {segment.sealed_at}; its seal is {seal}", event)
            known = self._known.get(segment.name)
            self._known[segment.name] = segment
            if known is None:
                continue
            if segment.active and not known.active:
                self._bad(f"{segment.name} was sealed and is active again", event)
            if (known.start, known.end) != (segment.start, segment.end):
                self._bad(f"{segment.name} is another segment now: {segment}, was {known}", event)
            if known.sealed_at is not None and segment.sealed_at != known.sealed_at:
                self._bad(f"{segment.name} was sealed at {known.sealed_at}, now {segment.sealed_at}", event)

    def _tiles(self, event: Layout) -> None:
        active = sorted((s.start, s.end, s.name) for s in event.segments if s.active)
        if event.deleted:
            if active:
                self._bad(f"{event.topic} is deleted and has active segments", event)
            return
        at = 0
        for start, end, name in active:
            if start != at:
                self._bad(f"{event.topic}, epoch {event.epoch}: {name} begins at {start:04x}, expected {at:04x}", event)
                return
            at = end + 1
        if at != RING:
            self._bad(f"{event.topic}, epoch {event.epoch}: nothing covers {at:04x}-ffff", event)

    def _bad(self, text: str, *events: Layout) -> None:
        self._found.note("layout does not tile", text, *events)


def _shape(event: Layout) -> tuple[bool, tuple[str, ...]]:
    """Return the parts of a layout that must not change within an epoch. Sealed segments may leave it within an epoch."""
    return event.deleted, tuple(sorted(s.name for s in event.segments if s.active))
