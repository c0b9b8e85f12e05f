"""The offset of a stream from Pulsar: `{"topic":"topic://..","epoch":E,"segments":{"segment://..":"ledger:entry"}}`.

The stream continues after the position of each segment in `segments`. It reads a segment that is not in `segments` from its
beginning.

`"ended":["segment://.."]` names sealed segments that have been read to their end. Their children are read after them.

`"initial":true` marks a result of `initialOffset`. Spark calls this method for each plan of the first batch, so there may be
several results. `"began":{..}`, in the end of the first batch only, has the positions from which the batch was planned. Every later
plan of this batch starts there.

`"sent":{"segment://..":"ledger:entry"}` has a position for each segment of the writers' log
(`pulsar_protocol.sent_log`). A read after this offset does not need the records up to these positions.

`"subscription":".."` is the name of the query's subscription, with `subscription=auto` (`holding`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metadata.common.errors import OffsetOutOfRange, OptionError
from pulsar_protocol.layout import Position

Positions = Mapping[str, Position]


@dataclass(frozen=True)
class PulsarOffset:
    """The offset of a stream. The docstring of this module explains the fields."""

    topic: str
    epoch: int
    segments: Positions
    ended: frozenset[str] = field(default_factory=frozenset)
    is_initial: bool = False
    began: Positions | None = None
    sent: Positions | None = None
    subscription: str | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"topic": self.topic, "epoch": self.epoch, "segments": _texts(self.segments)}
        if self.ended:
            found["ended"] = sorted(self.ended)
        if self.is_initial:
            found["initial"] = True
        if self.began is not None:
            found["began"] = _texts(self.began)
        if self.sent:
            found["sent"] = _texts(self.sent)
        if self.subscription is not None:
            found["subscription"] = self.subscription
        return found

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> PulsarOffset:
        """Return the offset from its JSON. Raises OffsetOutOfRange if the JSON is not an offset of this source."""
        try:
            began, sent = found.get("began"), found.get("sent")
            return PulsarOffset(
                found["topic"],
                found["epoch"],
                _positions(found["segments"]),
                frozenset(found.get("ended", ())),
                bool(found.get("initial", False)),
                None if began is None else _positions(began),
                None if sent is None else _positions(sent),
                found.get("subscription"),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise OffsetOutOfRange(
                f"The checkpoint has an offset that is not of a Pulsar topic: {dict(found)}.",
                advice="Start with a new checkpoint. A checkpoint belongs to one source.",
            ) from error

    def check_topic(self, topic: str) -> None:
        """Raise OptionError if the offset belongs to another topic."""
        if topic != self.topic:
            raise OptionError(
                f"The checkpoint belongs to {self.topic}, but the query reads {topic}.",
                advice="Read the topic of the checkpoint, or start with a new checkpoint.",
            )


def _texts(positions: Positions) -> dict[str, str]:
    return {name: place.text for name, place in sorted(positions.items())}


def _positions(found: Mapping[str, str]) -> dict[str, Position]:
    return {name: Position.parse(place) for name, place in found.items()}
