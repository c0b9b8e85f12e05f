"""The offset of a stream: `{"log":N,"read":<topics or pattern>}`, a number of the cluster's log and the selection (protocol.md
section 6).

An offset may have further fields:

`"deletedTo":D` is present while N is below D. Topics that were deleted by a seal at or below D were gone before the stream began,
so their rows are no data loss. A deletion above D is data loss, because the stream might have read the deleted rows.

`"acked":{"segment://..":["5:2..5:4"]}` gives rows above the start of the stream that the subscription had acknowledged before the
stream began. Such rows were acknowledged one by one, or in some segments only. The field is present while a batch may begin below
these rows.

`"from":{<segment or topic>:F,..}` gives the numbers up to which retention had trimmed a segment or topic before the stream began to
read it. Trimmed rows at or below F are no data loss. A stream from `earliest`, a stream with a subscription, and a stream that
later reads a further log have this field. A plan takes the field from the END of its batch, because in a replay of the first batch
the start is a new initial offset, which may have higher numbers. So the end of a batch keeps the entries of its start. An entry is
dropped when the start of a batch is at or above its F.

`"initial":true` marks a result of `initialOffset`. Spark calls this method for each plan of the first batch, so there may be
several results. `"began":{..}`, in the end of the first batch only, is the initial offset from which the batch was planned. Every
later plan of this batch starts there.

`"cluster":"<id>"` names the cluster. The numbers belong to the log of this cluster. In another cluster, even if it was created at
the same place, the numbers mean other rows. (Offsets of older versions of txnsegment do not have this field.)

`"subscription":"<name>"` names the subscription whose cursors the stream moves.

`"ackedTo":{"log":N,"persistent://..":L}` gives the numbers up to which all rows were acknowledged when the offset was planned.
These rows were acknowledged before the stream began or by its commits. If such a row is unacknowledged again, the subscription was
moved back, or deleted and created again.

`"persistent://t/n/x":"ledger:entry"`, for each persistent topic, gives the last entry that was read of the topic's own log. The
value is `0:0` before the first entry. A persistent topic that is read and has no such field was added later, by a pattern or by
`topicsChanged=continue`. Such a topic is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from metadata.common.errors import OffsetOutOfRange, OptionError
from metadata.read.selection import LOG, Position, Selection, selection_of
from metadata.records.names import is_persistent
from metadata.records.row_ranges import FIRST, NONE, Rows, before, end_of, parse_all, texts, union
from spark_txn_source.option_table import TopicsChanged


@dataclass(frozen=True)
class StreamOffset:
    """The offset of a stream. The docstring of this module explains the fields. A batch that starts at this offset reads the rows
    of the cluster's log above the number `log`, and the rows of each persistent topic above the topic's position in `positions`.
    """

    log: int
    read: object
    deleted_to: int = 0
    acked: tuple[tuple[str, tuple[str, ...]], ...] = ()
    trims: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[str, Position] = field(default_factory=dict)
    is_initial: bool = False
    began: Mapping[str, Any] | None = None
    cluster: str | None = None
    subscription: str | None = None
    acked_to: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        more: dict[str, Any] = {"deletedTo": self.deleted_to} if self.deleted_to > self.log else {}
        if self.acked:
            more = more | {"acked": {segment: list(found) for segment, found in self.acked}}
        if self.trims:
            more["from"] = dict(self.trims)
        if self.is_initial:
            more["initial"] = True
        if self.began is not None:
            more["began"] = self.began
        if self.cluster is not None:
            more["cluster"] = self.cluster
        if self.subscription is not None:
            more["subscription"] = self.subscription
        if self.acked_to:
            more["ackedTo"] = dict(self.acked_to)
        return {LOG: self.log, "read": self.read, **{name: str(place) for name, place in sorted(self.positions.items())}, **more}

    def number(self, log: str) -> int:
        """Return the number up to which the log with the name `log` has been read (0: nothing of it)."""
        return self.numbers().get(log, 0)

    def numbers(self) -> dict[str, int]:
        """Return the number up to which each log has been read, by the name of the log."""
        return {LOG: self.log, **{name: place.ledger for name, place in self.positions.items()}}

    def moved(self, places: Mapping[str, Position]) -> StreamOffset:
        """Return a copy with new positions in some logs."""
        own = {name: place for name, place in places.items() if name != LOG}
        return replace(self, log=places[LOG].ledger if LOG in places else self.log, positions={**self.positions, **own})

    def without(self, logs: Collection[str]) -> StreamOffset:
        """Return a copy without the positions in logs that are not read any more."""
        return replace(self, positions={name: place for name, place in self.positions.items() if name not in logs})

    def first_end(self) -> StreamOffset:
        """If this is an initial offset, return an offset for the end of the first batch: a copy that has this offset as `began`.
        Otherwise return this offset unchanged.
        """
        if not self.is_initial:
            return self
        plain = replace(self, is_initial=False)
        return replace(plain, began=plain.to_json())

    def start_of_batch(self, start: StreamOffset) -> StreamOffset:
        """Return the start of the batch that ends at this offset. `start`: the start that Spark gives. For the first batch Spark
        gives a new initial offset, so return the recorded `began` instead. (Checkpoints of older versions of txnsegment have no
        `began`.) Raises OffsetOutOfRange.
        """
        return offset_of(self.began) if start.is_initial and self.began is not None else start

    def done(self) -> dict[str, Rows]:
        """Return the rows in `acked`, by segment. Raises OffsetOutOfRange if the field is damaged."""
        try:
            return {segment: parse_all(found) for segment, found in self.acked}
        except ValueError as error:
            raise OffsetOutOfRange(f"The offset's acked is damaged: {error}.", advice="Use a new checkpoint location.") from error

    def acked_beyond(self, segment: str) -> Rows:
        """Return the rows in `acked` of a segment that were acknowledged one by one. A range that begins at the first row of the
        segment is left out. `as_segments` made this range from rows that were read, and some of these rows may be unacknowledged.
        Raises OffsetOutOfRange.
        """
        return tuple(one for one in self.done().get(segment, NONE) if one[0] != FIRST)

    def after(self, start: int, migrated: Mapping[str, int]) -> StreamOffset:
        """Return a copy without the entries of `acked` and `from` that a batch after `start` does not need, because they lie below
        `start` or belong to a topic that no longer exists.

        `migrated`: for each persistent topic that is read as a segment of its successor, the highest possible id of its ledgers
        at or below `start`. In `from`, the number of such a topic is a place in the cluster's log, and not a ledger id.
        """

        def own(name: str) -> bool:
            return is_persistent(name) and name not in migrated

        def gone(name: str) -> bool:
            return own(name) and name not in self.positions

        def behind(name: str) -> int:
            number = self.number(name) if own(name) else migrated.get(name, start)
            return min(number, self.acked_to.get(name if is_persistent(name) else LOG, number))

        done = {name: found for name, found in self.done().items() if found and not gone(name)}
        needed = any(found[-1][1].ledger_id > behind(name) for name, found in done.items())
        known = {name: n for name, n in self.trims.items() if not gone(name)}
        trims = {name: n for name, n in known.items() if n > (self.number(name) if own(name) else start)}
        return replace(self, acked=self.acked if needed else (), trims=trims)

    def as_segments(self, migrated: Iterable[str]) -> StreamOffset:
        """Return a copy for a read in which these persistent topics are segments of their successors and are no longer read by
        their own names (`topicsChanged=continue`). The rows up to their positions become ranges in `acked`, so that the read
        leaves these rows out.
        """
        mine = [name for name in migrated if name in self.positions]
        if not mine:
            return self
        done = self.done()
        done |= {name: union(done.get(name, NONE), before(end_of(self.number(name)))) for name in mine if self.number(name)}
        positions = {name: place for name, place in self.positions.items() if name not in mine}
        return replace(self, acked=tuple((name, tuple(texts(done[name]))) for name in sorted(done)), positions=positions)


def offset_of(found: Mapping[str, Any]) -> StreamOffset:
    """Parse an offset from Spark's checkpoint. Raises OffsetOutOfRange if it is not an offset of this source."""
    if not isinstance(found, Mapping):
        found = {}
    number, deleted_to = found.get(LOG), found.get("deletedTo", 0)
    acked, trims = found.get("acked", {}), found.get("from", {})
    is_initial, began, cluster = found.get("initial", False), found.get("began"), found.get("cluster")
    subscription, acked_to = found.get("subscription"), found.get("ackedTo", {})
    numbers = [number, deleted_to, *(n for one in (trims, acked_to) for n in (one.values() if isinstance(one, dict) else [None]))]
    places = {n: Position.parse(text) if isinstance(text, str) else None for n, text in found.items() if is_persistent(n)}
    positions = {name: place for name, place in places.items() if place is not None}
    marks = (
        isinstance(is_initial, bool)
        and (began is None or isinstance(began, dict))
        and all(isinstance(one, str | None) for one in (cluster, subscription))
    )
    sound = marks and isinstance(acked, dict) and len(positions) == len(places)
    sound = sound and all(isinstance(rows, list | tuple) and all(isinstance(r, str) for r in rows) for rows in acked.values())
    if not sound or any(type(n) is not int or not 0 <= n < 2**63 for n in numbers):
        raise OffsetOutOfRange(
            f"{found!r:.500} is not an offset of txnsegment.",
            advice="The checkpoint belongs to another source; use a new checkpoint location.",
        )
    done = tuple((s, tuple(t)) for s, t in sorted(acked.items()))
    marked = (is_initial, began, cluster, subscription)
    return StreamOffset(numbers[0], found.get("read"), numbers[1], done, trims, positions, *marked, acked_to)


def same_topics(offset: StreamOffset, selection: Selection, changed: TopicsChanged) -> None:
    """Raise OptionError if a restarted query reads other topics than its checkpoint, unless `topicsChanged=continue` is set."""
    if offset.read == selection.key or changed == "continue":
        return
    raise OptionError(
        f"The checkpoint reads {offset.read}, this query reads {selection.key}.",
        advice="Use a new checkpoint, or topicsChanged=continue: added topics then start at the checkpoint's offset "
        "(persistent:// ones, which have a log of their own, at their first row).",
    )


def planned_selection(end: dict[str, Any], selection: Selection) -> Selection:
    """Return the selection for which a batch was planned. The offset `end`, at the end of the batch, names this selection. Raises
    OffsetOutOfRange.
    """
    offset = offset_of(end)
    if offset.read == selection.key:
        return selection
    found = selection_of(offset.read)
    if found is None:
        raise OffsetOutOfRange(f"{end!r} is not an offset of txnsegment.", advice="Use a new checkpoint location.")
    return found
