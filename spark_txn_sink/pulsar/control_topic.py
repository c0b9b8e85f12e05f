"""Reads and writes the control topic of one application and one data topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.layout import Position
from pulsar_protocol.owned_names import owned_name
from pulsar_protocol.reader import entries
from spark_txn_sink.pulsar.attempts import Attempt, Opened
from spark_txn_sink.pulsar.control import Checkpoint, Record, Take, decode, encode
from spark_txn_sink.pulsar.owned_log import SUBSCRIPTION, Codec, OwnedLog

_CODEC: Final[Codec[Record]] = Codec(encode, decode, Take, Checkpoint)


def control_name(app: str, topic: str) -> str:
    """Return the name of the control topic of an application and a data topic (`topic://tenant/namespace/name`)."""
    return owned_name("control", app, topic)


class ControlTopic(OwnedLog[Record]):
    """The control topic. Implements `committing.Control`. Raises the errors of `pulsar_protocol`."""

    def __init__(self, connect: Callable[[], PulsarClient], app: str, topic: str, admin_url: str | None) -> None:
        super().__init__(connect, control_name(app, topic), admin_url, _CODEC, "fencing")
        self._app = app
        self._reader = f"{SUBSCRIPTION}-{self.name.rpartition('_')[2]}"
        """The subscription of this application on the writers' log."""

    def take(self, run: str) -> Position:
        return self.own(Take(run))

    def strays(self, opened: Opened) -> list[TxnId]:
        with self._cursor(opened.segment, self._reader) as cursor:
            start = cursor.position
        found: dict[str, None] = {}
        for _, entry in entries(self._opened(), opened.segment, start, opened.place):
            records = [Attempt.decoded(message.value or b"", opened.segment) for message in entry.messages()]
            found.update((one.txn, None) for one in records if one.app == self._app and one.txn != opened.txn.text)
        return [TxnId.parse(text) for text in found]

    def passed(self, opened: Opened) -> None:
        with self._cursor(opened.segment, self._reader) as cursor:
            cursor.acknowledge(opened.place)
