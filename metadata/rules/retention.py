"""The rules of retention: the effective policy of a topic, and the number up to which its rows are trimmed (protocol.md section 7,
trim). Pure: no I/O, no clock.

A trim removes the rows up to one number of the log in all segments of a topic. So it never removes only some of the rows that a
transaction wrote to the topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from metadata.records.records import Layout, Policies, SegmentInfo, SegmentState, Watermark
from metadata.records.row_ranges import Row, end_of

NO_LIMIT = -1
"""A policy of a topic with this value means: no limit, even if the namespace sets a limit."""


class Kept(NamedTuple):
    """A unit that retention trims as a whole or not at all: a visible registration of a topic, or a group of whole transactions of
    a migrated segment. `number`: its last number. `bytes`: for `trim_to`, its bytes in all segments of the topic.
    """

    number: int
    publish_ms: int
    bytes: int


def effective(topic: Policies | None, namespace: Policies | None) -> Policies:
    """Return the effective policies of a topic. For a policy that the topic does not set, the policy of its namespace applies.
    NO_LIMIT becomes None.
    """
    found: dict[str, object] = {}
    for name in Policies.model_fields:
        value = None
        for one in (topic, namespace):
            value = getattr(one, name) if one is not None and value is None else value
        found[name] = None if value == NO_LIMIT and value is not True else value
    return Policies.model_validate(found)


def trim_to(kept: Iterable[Kept], policies: Policies, *, total_bytes: int, now_ms: int, known_to: int | None = None) -> int:
    """Return the highest number to trim (0: none). A registration is trimmed if all earlier ones are trimmed, and it is too old or
    beyond the limit of bytes. `kept` is ascending, and is read only as far as needed. `total_bytes`: the bytes of all
    registrations.

    A registration is too old if it and all earlier ones were published longer ago than the limit. But publish times can be wrong. A
    registration above the number `known_to` is certain to be younger than the limit, so it is never too old (`elapsed.known_to`;
    None: this check is left out).

    A registration is beyond the limit of bytes if it and all later ones together have more bytes than the limit.
    """
    through = 0
    latest, left = 0, total_bytes
    for one in kept:
        latest = max(latest, one.publish_ms)
        old = policies.retention_ms is not None and latest + policies.retention_ms < now_ms
        old = old and (known_to is None or one.number <= known_to)
        much = policies.retention_bytes is not None and left > policies.retention_bytes
        if not (old or much):
            break
        left -= one.bytes
        through = one.number
    return through


def is_done(ledger_id: int, last_entry: int, needed: Row | None) -> bool:
    """Return whether no subscription needs a row of a ledger, because the first needed row lies after the ledger's last entry.
    `needed`: the first needed row (None: no row is needed).
    """
    return needed is None or end_of(ledger_id, last_entry) <= needed


def is_drained(info: SegmentInfo, mark: Watermark | None, empty: bool, needed: Row | None, *, now_ms: int, grace_ms: int) -> bool:
    """Return whether a segment can leave its layout. Four conditions must hold. The segment was sealed longer ago than the grace
    period, so no write is staged for it any more. The segment is folded up to its seal. The segment has no rows (`empty`). No
    subscription still needs a trimmed row of the segment. If a subscription needs one, the segment must stay, because only the
    subscription's cursor in this segment shows that the row was needed.
    """
    return (
        info.state is SegmentState.SEALED
        and info.deleted_at_log is None
        and info.sealed_at_log is not None
        and info.sealed_at_ms + grace_ms < now_ms
        and mark is not None
        and mark.ledger_id >= info.sealed_at_log
        and empty
        and (mark.trimmed_to is None or is_done(mark.trimmed_to.ledger_id, mark.trimmed_to.entry_id, needed))
    )


def without_drained(layout: Layout, drained: dict[int, Watermark]) -> Layout:
    """Return the layout without drained segments. `drained`: the watermarks of these segments by segment id. The layout keeps the
    highest `trimmed_to` of the watermarks, so that later reads notice the trimmed rows.
    """
    gone: list[Watermark | Layout] = [*drained.values(), layout]
    guards = [one.trimmed_to for one in gone if one.trimmed_to is not None]
    times = [one.trimmed_ms for one in gone if one.trimmed_ms is not None]
    segments = {key: info for key, info in layout.segments.items() if info.segment_id not in drained}
    update = {
        "segments": segments,
        "trimmed_to": max(guards, key=lambda p: (p.ledger_id, p.entry_id), default=None),
        "trimmed_ms": max(times, default=None),
    }
    return layout.model_copy(update=update)
