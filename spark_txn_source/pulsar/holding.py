"""The durable subscription of a query, which keeps unread entries from retention.

The option `subscription` names it. Spark tells the reader of a Python source neither the query's id nor where its checkpoint is. So
with `subscription=auto` the name is random, and a part of the stream's offset: Spark keeps it in the checkpoint, and a restarted
query finds it there. The subscription is made after Spark has written the name into the checkpoint. Otherwise a query that is
killed before this write would leave a subscription whose name nobody knows, and which holds entries for ever.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pulsar_protocol.layout import Position
from pulsar_protocol.subscription import Subscription
from spark_txn_source.pulsar.offsets import PulsarOffset

AUTO: Final = "auto"


class Holding:
    """The subscription of one reader. `given`: the option, or None: no subscription. `connect` opens one by its name."""

    def __init__(self, given: str | None, connect: Callable[[str], Subscription]) -> None:
        self._given, self._connect = given, connect
        self._open: Subscription | None = None

    @property
    def is_auto(self) -> bool:
        return self._given is not None and self._given.lower() == AUTO

    def named(self, offset: PulsarOffset) -> PulsarOffset:
        """Return the offset with the name of the subscription, if the offset keeps it."""
        if not self.is_auto or offset.subscription is not None:
            return offset
        return replace(offset, subscription=f"txnsegment-{uuid.uuid4().hex}")

    def hold(self, offset: PulsarOffset, segments: Sequence[str]) -> None:
        """Let the subscription hold the unread entries of these segments. `offset`: one that is in the checkpoint. Raises
        ConnectionLost, the broker's error.
        """
        found = self._of(offset)
        if found is not None:
            found.hold([*segments])

    def holds(self, offset: PulsarOffset) -> bool:
        """Whether the subscription of the offset is open, or there is none."""
        name = self._name(offset)
        return name is None or (self._open is not None and self._open.name == name)

    def acknowledge(self, offset: PulsarOffset, positions: Mapping[str, Position]) -> None:
        """Acknowledge all entries of segments up to these positions. `offset`: one that is in the checkpoint. Idempotent."""
        found = self._of(offset)
        if found is not None:
            found.acknowledge(positions)

    def _name(self, offset: PulsarOffset) -> str | None:
        return offset.subscription if self.is_auto else self._given

    def _of(self, offset: PulsarOffset) -> Subscription | None:
        name = self._name(offset)
        if name is None:
            return None
        if self._open is None or self._open.name != name:
            self.close()
            self._open = self._connect(name)
        return self._open

    def close(self) -> None:
        """End the consumers. The subscription stays."""
        if self._open is not None:
            self._open.close()
            self._open = None
