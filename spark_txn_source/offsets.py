"""A stream's offset: one number of the log, and what is read: `{"log":N,"read":<topics or pattern>}` (protocol.md section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metadata.errors import OffsetOutOfRange, OptionError
from spark_txn_source.options import TopicsChanged
from spark_txn_source.selection import Selection, selection_of


@dataclass(frozen=True)
class StreamOffset:
    """Everything of this read at or below `log` has been read."""

    log: int
    read: object

    def to_json(self) -> dict[str, Any]:
        return {"log": self.log, "read": self.read}


def offset_of(found: dict[str, Any]) -> StreamOffset:
    """Parse what Spark's checkpoint holds. Raises OffsetOutOfRange for what is not ours."""
    number = found.get("log")
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise OffsetOutOfRange(
            f"{found!r} is not an offset of txnsegment.",
            advice="The checkpoint belongs to another source; use a new checkpoint location.",
        )
    return StreamOffset(number, found.get("read"))


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
