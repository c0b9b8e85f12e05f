"""The durable subscription of a query, which keeps unread entries from retention.

The option `subscription` gives the name of the subscription. Spark tells the reader of a Python source neither the query's id nor
where its checkpoint is. So with `subscription=auto` the name is random, and the stream's offset contains it: Spark keeps the offset
in the checkpoint, and a restarted query finds the name there. The subscription is made after Spark has written the name into the
checkpoint. Otherwise a query that is killed before this write would leave a subscription whose name nobody knows, and which holds
entries for ever.
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
    """The subscription of one reader. `given`: the value of the option `subscription`; None: the reader has no subscription.
    `connect`: a function that opens the subscription of a given name.
    """

    def __init__(self, given: str | None, connect: Callable[[str], Subscription]) -> None:
        self._given, self._connect = given, connect
        self._open: Subscription | None = None

    @property
    def is_auto(self) -> bool:
        return self._given is not None and self._given.lower() == AUTO

    def named(self, offset: PulsarOffset) -> PulsarOffset:
        """Return the offset with the name of the subscription, for `subscription=auto`. If the offset has no name yet, make a
        random one. For any other value of the option return the offset unchanged.
        """
        if not self.is_auto or offset.subscription is not None:
            return offset
        return replace(offset, subscription=f"txnsegment-{uuid.uuid4().hex}")

    def hold(self, offset: PulsarOffset, segments: Sequence[str]) -> None:
        """Let the subscription hold the unread entries of these segments. `offset`: an offset that Spark has written into the
        checkpoint. Raises ConnectionLost, or another error of the broker.
        """
        found = self._of(offset)
        if found is not None:
            found.hold([*segments])

    def holds(self, offset: PulsarOffset) -> bool:
        """Return whether this object has opened the subscription of the offset. Return True if there is no subscription."""
        name = self._name(offset)
        return name is None or (self._open is not None and self._open.name == name)

    def acknowledge(self, offset: PulsarOffset, positions: Mapping[str, Position]) -> None:
        """Acknowledge all entries of segments up to these positions, inclusive. `offset`: an offset that Spark has written into the
        checkpoint. Idempotent. Raises ConnectionLost, or another error of the broker.
        """
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
        """Close the consumers of the subscription. The subscription itself stays."""
        if self._open is not None:
            self._open.close()
            self._open = None
