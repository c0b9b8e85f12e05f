"""The offset of a stream from several Pulsar topics: `{"topics":{"topic://..":{..}, ..}}`. Pure.

`topics` has the offset of each topic (`offsets`). `"pattern":".."` names the pattern whose topics are read. A stream that reads one
topic by its name does not have this offset, but the offset of the topic alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metadata.common.errors import OffsetOutOfRange, OptionError
from spark_txn_source.option_table import TopicsChanged
from spark_txn_source.pulsar.offsets import PulsarOffset
from spark_txn_source.pulsar.selection import Selection, TopicsPattern


@dataclass(frozen=True)
class SeveralOffset:
    """The offset of a stream from several topics. `pattern`: the pattern whose topics are read. None: the query names the topics
    that it reads.
    """

    topics: Mapping[str, dict[str, Any]]
    pattern: str | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"topics": {name: self.topics[name] for name in sorted(self.topics)}}
        return found if self.pattern is None else {**found, "pattern": self.pattern}

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> SeveralOffset:
        """Return the offset from its JSON. The JSON may also be the offset of a stream from one topic. Raises OffsetOutOfRange if
        the JSON is not an offset of this source.
        """
        try:
            topics = found["topics"] if "topics" in found else {found["topic"]: found}
            offsets = {str(name): dict(one) for name, one in topics.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise OffsetOutOfRange(
                f"The checkpoint has an offset that is not of Pulsar topics: {dict(found)}.",
                advice="Start with a new checkpoint. A checkpoint belongs to one source.",
            ) from error
        return SeveralOffset(offsets, found.get("pattern"))

    def check_selection(self, selection: Selection, changed: TopicsChanged) -> None:
        """Raise OptionError if the query reads other topics than its checkpoint, unless `topicsChanged=continue` is given."""
        if changed == "continue":
            return
        if isinstance(selection, TopicsPattern):
            reads, equal = f"those that match {selection.regex}", self.pattern == selection.regex
        else:
            reads, equal = ", ".join(sorted(selection)), self.pattern is None and set(self.topics) == set(selection)
        if not equal:
            known = ", ".join(sorted(self.topics)) if self.pattern is None else f"those that match {self.pattern}"
            raise OptionError(
                f"The checkpoint has the topics {known}, and the query reads {reads}.",
                advice="Use a new checkpoint, or topicsChanged=continue: added topics are then read from their beginning.",
            )

    def of(self, topic: str) -> dict[str, Any]:
        """Return the offset of a topic. For a topic that is not in this offset, return an offset at the beginning of the topic."""
        return self.topics.get(topic) or PulsarOffset(topic, 0, {}).to_json()


def read_in(start: SeveralOffset, end: SeveralOffset) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return, for each topic of which a micro-batch has rows, the offsets of the topic at the start and at the end of the batch. A
    topic whose end is an initial offset has no rows in the batch, even if its start differs from its end. They may differ because
    Spark asks for a new initial offset whenever it plans the first batch again.
    """
    found = {}
    for topic, to in sorted(end.topics.items()):
        begin = start.of(topic)
        if begin != to and not PulsarOffset.of_json(to).is_initial:
            found[topic] = (begin, to)
    return found
