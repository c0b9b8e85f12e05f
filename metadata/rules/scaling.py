"""The rules of the scaling policies: automatic splits and merges of segments (docs/scaling.md). Pure: no I/O, no clock.

The load of a segment is the rows and bytes of its visible registrations that were published within the last cool-down. A segment
younger than the cool-down is changed only if the topic has fewer segments than the minimum. A segment whose load is above a limit
is split. If the policies say how few segments the topic may have, two neighbours are merged if their joint load is at most half of
each limit. So the children of a split are not merged at once, and a merged segment is not split at once. Without such a minimum
nothing is merged: segments that a person has made, by a creation or a split, are never undone unasked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from metadata.records.records import Policies, SegmentInfo

COOL_DOWN_MS = 60_000
MAX_SEGMENTS = 64
"""COOL_DOWN_MS and MAX_SEGMENTS apply if a topic's policies set a rate, but no cool-down or no maximum of segments."""
MERGE_SHARE = 0.5
"""Two neighbours merge when their joint load is at most this share of each limit."""


class Measured(NamedTuple):
    """Rows and bytes that were published to a segment within the last cool-down."""

    rows: int
    bytes: int


class Change(NamedTuple):
    """One change of a layout. One segment id in `segments` means a split, two mean a merge. `why`: the reason, for messages."""

    segments: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Rule:
    """The complete scaling policy of a topic. `rows`, `bytes`: the limits of the rows and bytes that one segment gets in a second
    (None: no limit). `fewest`, `most`: the minimum and the maximum count of active segments. `fewest` is None if no minimum was
    set; then no segments are merged.
    """

    rows: int | None
    bytes: int | None
    fewest: int | None
    most: int
    cool_down_ms: int

    def share(self, found: Measured) -> float:
        """Return the load as a share of the limit, for rows or for bytes, whichever share is higher. A segment with a share above 1
        is split.
        """
        seconds = self.cool_down_ms / 1000
        shares = [count / seconds / limit for count, limit in ((found.rows, self.rows), (found.bytes, self.bytes)) if limit]
        return max(shares, default=0.0)


def rule(policies: Policies) -> Rule | None:
    """Return the scaling rule; None if the policies set no rate. `policies` must be effective policies (`retention.effective`)."""
    if policies.split_rows_per_second is None and policies.split_bytes_per_second is None:
        return None
    fewest = policies.min_segments
    return Rule(
        policies.split_rows_per_second,
        policies.split_bytes_per_second,
        fewest,
        max(fewest or 1, policies.max_segments or MAX_SEGMENTS),
        policies.scaling_cool_down_ms or COOL_DOWN_MS,
    )


def changes(rule: Rule, active: Sequence[SegmentInfo], measured: Mapping[int, Measured], now_ms: int) -> list[Change]:
    """Return the changes to make now. If there are fewer segments than the minimum, the widest segments are split, whatever their
    load and age. Otherwise the segments above a limit are split, up to the maximum number of segments, those with the highest load
    first. If no segment is above a limit and there is a minimum, pairs of neighbours with a low load are merged, those with the
    lowest load first.

    `active` is in the order of the ranges. `measured` is by segment id (missing: no load). No segment is in two changes.
    """
    wide = [info for info in active if info.hash_range.end > info.hash_range.start]
    known = [info for info in active if info.created_at_ms + rule.cool_down_ms <= now_ms]
    shares = {info.segment_id: rule.share(measured.get(info.segment_id, Measured(0, 0))) for info in known}
    if rule.fewest is not None and len(active) < rule.fewest:
        widest = sorted(wide, key=lambda info: (info.hash_range.start - info.hash_range.end, info.hash_range.start))
        missing = rule.fewest - len(active)
        return [Change((info.segment_id,), f"{len(active)} segments, at least {rule.fewest}") for info in widest[:missing]]
    full = sorted((info for info in wide if shares.get(info.segment_id, 0) > 1), key=lambda info: -shares[info.segment_id])
    room = rule.most - len(active)
    if full:
        return [Change((info.segment_id,), f"{shares[info.segment_id]:.0%} of the limit") for info in full[: max(room, 0)]]
    return [] if rule.fewest is None else _merges(rule.fewest, active, shares)


def _merges(fewest: int, active: Sequence[SegmentInfo], shares: Mapping[int, float]) -> list[Change]:
    pairs = []
    for left, right in pairwise(active):
        ids = (left.segment_id, right.segment_id)
        together = sum(shares.get(i, 1.0) for i in ids)
        if together <= MERGE_SHARE:
            pairs.append((together, left.hash_range.start, ids))
    found: list[Change] = []
    taken: set[int] = set()
    for together, _, ids in sorted(pairs):
        if len(active) - len(found) > fewest and taken.isdisjoint(ids):
            found.append(Change(ids, f"{together:.0%} of the limit together"))
            taken.update(ids)
    return found
