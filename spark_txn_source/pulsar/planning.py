"""What a micro-batch reads from the segments of a Pulsar topic. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from metadata.common.errors import DataLoss
from pulsar_protocol.layout import EARLIEST, Layout, Position
from spark_txn_source.pulsar.offsets import PulsarOffset


def without_gone(offset: PulsarOffset, layout: Layout, *, fail_on_data_loss: bool) -> PulsarOffset:
    """Return the offset without the segments that the layout does not have any more. Raises DataLoss if the topic was deleted and
    created again, as far as its epoch and its active segments tell. With `fail_on_data_loss` also raises DataLoss if one of these
    segments was not read to its end.
    """
    if layout.epoch < offset.epoch:
        raise DataLoss(
            f"{offset.topic} has the epoch {layout.epoch}, but the checkpoint has seen the epoch {offset.epoch}: the topic was "
            "deleted and created again.",
            advice="Start with a new checkpoint.",
        )
    if again := sorted(one.name for one in layout.active if one.name in offset.ended):
        raise DataLoss(
            f"{again[0]} takes rows, but a segment of this name was sealed and read to its end: {offset.topic} was deleted and "
            "created again.",
            advice="Start with a new checkpoint. If the rows are read by cluster.consumer or txn.read, call "
            "cluster.subscriptions.delete (txnsegment subscriptions delete), then create the subscription again.",
        )
    names = {one.name for one in layout.segments.values()}
    gone = {name for name in offset.segments if name not in names}
    unread = sorted(gone - offset.ended)
    if unread and fail_on_data_loss:
        raise DataLoss(
            f"{unread[0]} was deleted. It was read up to {offset.segments[unread[0]].text} only, and may have had more entries.",
            advice="Keep a subscription or retention on the topic. Start a new checkpoint, or set failOnDataLoss=false.",
        )
    kept = {name: place for name, place in offset.segments.items() if name in names}
    return replace(offset, epoch=layout.epoch, segments=kept, ended=offset.ended & names)


@dataclass(frozen=True)
class FirstEntry:
    """The first unread entry of a segment: its position, how many messages it has, and its size in bytes."""

    position: Position
    messages: int
    size: int


def limited(
    ends: Mapping[str, Position], firsts: Mapping[str, FirstEntry], max_rows: int | None, max_bytes: int | None
) -> dict[str, Position]:
    """Return the end of a micro-batch in each segment, by the limits. `ends`: the ends without limits. `firsts`: the first unread
    entry of each segment. The limits are soft. Each segment gets the same share of them, and at least one entry. All unread entries
    of a segment are assumed to be as large as the first one. A limited end lies in the ledger of the first unread entry.
    """
    found = {}
    for name, end in ends.items():
        first = firsts[name]
        counts = [
            max(1, limit // len(ends) // max(1, size))
            for limit, size in ((max_rows, first.messages), (max_bytes, first.size))
            if limit is not None
        ]
        last = Position(first.position.ledger, first.position.entry + min(counts) - 1) if counts else end
        found[name] = min(end, last)
    return found


def moved(offset: PulsarOffset, ends: Mapping[str, Position], ended: frozenset[str]) -> PulsarOffset:
    """Return the end of a micro-batch as an offset, without `sent` (see `offsets`). The end of the first batch of a checkpoint
    records the start, too (`began`).
    """
    segments = {**offset.segments, **ends}
    began = None
    if offset.is_initial:
        began = {**dict.fromkeys(ends, EARLIEST), **offset.segments}
    return replace(offset, segments=segments, ended=ended, is_initial=False, began=began, sent=None)
