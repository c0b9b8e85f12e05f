"""A stream's offset: one number of the log, and what is read: `{"log":N,"read":<topics or pattern>}` (protocol.md section 6).

`"deletedTo":D` besides, while N is below D: topics that a seal up to D deleted were gone before the stream began, so their rows are
no loss for it. Deletions above D are: their rows were there when the stream might have read them.

`"from":{<segment or topic>:N,..}` besides, in a stream from `earliest`: what retention had taken of each before it began. An end
keeps what its start says, since Spark asks for the initial offset anew when it replays the first batch; it goes once a start has
passed N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metadata.errors import OffsetOutOfRange, OptionError
from spark_txn_source.options import TopicsChanged
from spark_txn_source.selection import Selection, selection_of


@dataclass(frozen=True)
class StreamOffset:
    """Everything of this read at or below `log` has been read, but for what deletions up to `deleted_to` took before it began."""

    log: int
    read: object
    deleted_to: int = 0
    trims: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        more: dict[str, Any] = {"deletedTo": self.deleted_to} if self.deleted_to > self.log else {}
        if self.trims:
            more["from"] = dict(self.trims)
        return {"log": self.log, "read": self.read, **more}

    def still(self) -> dict[str, int]:
        """The trims that an offset has to remember which follows this one."""
        return {name: n for name, n in self.trims.items() if n > self.log}


def offset_of(found: dict[str, Any]) -> StreamOffset:
    """Parse what Spark's checkpoint holds. Raises OffsetOutOfRange for what is not ours."""
    number, deleted_to, trims = found.get("log"), found.get("deletedTo", 0), found.get("from", {})
    numbers = [number, deleted_to, *(trims.values() if isinstance(trims, dict) else [None])]
    if any(type(n) is not int or n < 0 for n in numbers):
        raise OffsetOutOfRange(
            f"{found!r} is not an offset of txnsegment.",
            advice="The checkpoint belongs to another source; use a new checkpoint location.",
        )
    return StreamOffset(numbers[0], found.get("read"), deleted_to, trims)


def same_topics(offset: StreamOffset, selection: Selection, changed: TopicsChanged) -> None:
    """A restart with other topics is an error unless `topicsChanged=continue`: added ones then start where the stream stands."""
    if offset.read == selection.key or changed == "continue":
        return
    raise OptionError(
        f"The checkpoint reads {offset.read}, this query reads {selection.key}.",
        advice="Use a new checkpoint, or topicsChanged=continue: added topics then start where the stream stands.",
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
