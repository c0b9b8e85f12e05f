"""A stream's offset: one number of the log, and what is read: `{"log":N,"read":<topics or pattern>}` (protocol.md section 6).

`"deletedTo":D` besides, while N is below D: topics that a seal up to D deleted were gone before the stream began, so their rows are
no loss for it. Deletions above D are: their rows were there when the stream might have read them.

`"acked":{"segment://..":["5:2..5:4"]}` besides, while a batch may begin below them: rows that the subscription had acknowledged
beyond the number at which the stream began, one by one or in some segments only.

`"from":{<segment or topic>:N,..}` besides, in a stream from `earliest`: what retention had taken of each before it began. An end
keeps what its start says, since Spark asks for the initial offset anew when it replays the first batch; it goes once a start has
passed N.

`"initial":true` marks what `initialOffset` answers. Spark calls it anew for each plan of the first batch, so its answers differ.
`"began":{..}` in the end of the first batch is the initial offset that this batch was planned from. Every later plan of the batch
starts there. No later end has it.

`"cluster":"<id>"` says whose log the numbers are of. They name other rows in another cluster, also in one that was made anew in the
same place. (Offsets of older versions do not say it.)

`"subscription":"<name>"` is the one whose cursors follow the stream.

`"ackedTo":{"log":N,"persistent://..":L}` says up to where all rows were acknowledged when the offset was planned: they were so
before the stream began, or by its commits. If such a row is left again, the subscription was moved back, or deleted and made again.

`"persistent://t/n/x":"ledger:entry"` besides for each persistent topic, which has a log of its own: the last entry that was read,
`0:0` before the first. One that is read and not named came later (a pattern, topicsChanged=continue): it is read from its
beginning.
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
    """Everything of this read at or below `log` has been read, but for what deletions up to `deleted_to` took before it began."""

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
        """The number up to which a log has been read (0: nothing of it)."""
        return self.numbers().get(log, 0)

    def numbers(self) -> dict[str, int]:
        """The number up to which each log has been read, by the name of the log."""
        return {LOG: self.log, **{name: place.ledger for name, place in self.positions.items()}}

    def moved(self, places: Mapping[str, Position]) -> StreamOffset:
        """The same at new places in some logs."""
        own = {name: place for name, place in places.items() if name != LOG}
        return replace(self, log=places[LOG].ledger if LOG in places else self.log, positions={**self.positions, **own})

    def without(self, logs: Collection[str]) -> StreamOffset:
        """The same without the positions in logs that are read no more."""
        return replace(self, positions={name: place for name, place in self.positions.items() if name not in logs})

    def first_end(self) -> StreamOffset:
        """Of an initial offset: the same as the end of the first batch, which records where the batch began. Others stay."""
        if not self.is_initial:
            return self
        plain = replace(self, is_initial=False)
        return replace(plain, began=plain.to_json())

    def start_of_batch(self, start: StreamOffset) -> StreamOffset:
        """Where the batch that ends here starts, given the start that Spark says: of the first batch Spark says a new initial
        offset, and the batch starts where it was planned from. (Checkpoints of older versions do not record that.) Raises
        OffsetOutOfRange.
        """
        return offset_of(self.began) if start.is_initial and self.began is not None else start

    def done(self) -> dict[str, Rows]:
        """What of each segment was acknowledged beyond the start. Raises OffsetOutOfRange."""
        try:
            return {segment: parse_all(found) for segment, found in self.acked}
        except ValueError as error:
            raise OffsetOutOfRange(f"The offset's acked is damaged: {error}.", advice="Use a new checkpoint location.") from error

    def acked_beyond(self, segment: str) -> Rows:
        """What of a segment was acknowledged beyond the start, one by one. What reaches back to its first row was read
        (`as_segments`), and may be acknowledged or not. Raises OffsetOutOfRange.
        """
        return tuple(one for one in self.done().get(segment, NONE) if one[0] != FIRST)

    def after(self, start: int, migrated: Mapping[str, int]) -> StreamOffset:
        """The same without what a batch after `start` does not need, since all of it lies behind, or was of a topic that is gone.
        `migrated`: of each persistent topic that is read as a segment of the topic:// that goes on, the ledger at `start`; all else
        of it are numbers of the log.
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
        """The same for a read that has these persistent topics as segments of the topic:// that goes on, and no longer under their
        own names (`topicsChanged=continue`): what was read by their own positions is done.
        """
        mine = [name for name in migrated if name in self.positions]
        if not mine:
            return self
        done = self.done()
        done |= {name: union(done.get(name, NONE), before(end_of(self.number(name)))) for name in mine if self.number(name)}
        positions = {name: place for name, place in self.positions.items() if name not in mine}
        return replace(self, acked=tuple((name, tuple(texts(done[name]))) for name in sorted(done)), positions=positions)


def offset_of(found: Mapping[str, Any]) -> StreamOffset:
    """Parse what Spark's checkpoint holds. Raises OffsetOutOfRange for what is not ours."""
    if not isinstance(found, Mapping):
        found = {}
    number, deleted_to = found.get("log"), found.get("deletedTo", 0)
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
    """A restart with other topics is an error unless `topicsChanged=continue`: added ones then start where the stream stands."""
    if offset.read == selection.key or changed == "continue":
        return
    raise OptionError(
        f"The checkpoint reads {offset.read}, this query reads {selection.key}.",
        advice="Use a new checkpoint, or topicsChanged=continue: added topics then start where the stream stands "
        "(persistent:// ones, which have a log of their own, at their first row).",
    )


def planned_selection(end: dict[str, Any], selection: Selection) -> Selection:
    """What the batch that ends at this offset reads: the topics that it was planned for. Raises OffsetOutOfRange."""
    offset = offset_of(end)
    if offset.read == selection.key:
        return selection
    found = selection_of(offset.read)
    if found is None:
        raise OffsetOutOfRange(f"{end!r} is not an offset of txnsegment.", advice="Use a new checkpoint location.")
    return found
