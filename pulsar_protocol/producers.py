"""Producers that stay open after their use, so that a writer of many small batches does not open one for each batch.

with lend(client, segment) as producer:      # no other caller gets this producer until it is given back
    producer.send(messages)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, NamedTuple, Self

from pulsar_protocol.batches import Message, Rows
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Compression
from pulsar_protocol.errors import MessageTooLarge
from pulsar_protocol.layout import Position
from pulsar_protocol.messages import Schema
from pulsar_protocol.producer import Extent, Producer, open_shared

IDLE_SECONDS: Final = 120.0
"""A producer that nobody has used for this time is closed, as soon as another one is lent or given back."""


class _Key(NamedTuple):
    topic: str
    schema: bytes | None


class Producers:
    """The idle producers of one client. They have shared access. `now`: a monotonic clock in seconds."""

    def __init__(
        self, open_producer: Callable[[str, Schema | None], Producer], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._open, self._now = open_producer, now
        self._guard = threading.Lock()
        self._idle: dict[_Key, list[tuple[float, Producer]]] = {}

    def lend(self, topic: str, schema: Schema | None = None) -> Lent:
        """Return a producer for one caller alone: an idle producer that is still open (`Producer.alive`), or a new producer. Raises
        as `Producer`.
        """
        key = _Key(topic, None if schema is None else schema.SerializeToString(deterministic=True))
        self._close_old()
        while (found := self._taken(key)) is not None:
            if found.alive:
                return Lent(self, key, found)
            found.close()
        return Lent(self, key, self._open(topic, schema))

    def give_back(self, key: _Key, producer: Producer) -> None:
        with self._guard:
            self._idle.setdefault(key, []).append((self._now(), producer))
        self._close_old()

    def _taken(self, key: _Key) -> Producer | None:
        """Take the idle producer that was used last, and return it (None: no producer is idle)."""
        with self._guard:
            idle = self._idle.get(key)
            found = idle.pop()[1] if idle else None
            if not idle:
                self._idle.pop(key, None)
            return found

    def _close_old(self) -> None:
        limit, old = self._now() - IDLE_SECONDS, list[Producer]()
        with self._guard:
            for key, idle in list(self._idle.items()):
                old += [one for since, one in idle if since < limit]
                self._idle[key] = [one for one in idle if one[0] >= limit]
                if not self._idle[key]:
                    del self._idle[key]
        for one in old:
            one.close()


class Lent:
    """A producer on loan. `close` gives it back. After an error of `send`, `close` closes the producer instead, because its entry
    may still be in flight, and a producer may have only one entry in flight.
    """

    def __init__(self, home: Producers, key: _Key, producer: Producer) -> None:
        self._home, self._key, self._producer = home, key, producer
        self._failed = self._over = False

    def send(self, messages: Sequence[Message] | Rows, txn: TxnId | None = None, compression: Compression = "none") -> Position:
        """Send messages as one entry and wait for its receipt. Raises as `Producer.send`."""
        with self._watched():
            return self._producer.send(messages, txn, compression)

    def send_large(self, message: Message, txn: TxnId | None = None, compression: Compression = "none") -> Extent:
        """Send a message in chunks and wait for their receipts. Raises as `Producer.send_large`."""
        with self._watched():
            return self._producer.send_large(message, txn, compression)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except MessageTooLarge:
            raise  # nothing was sent
        except BaseException:
            self._failed = True
            raise

    def close(self) -> None:
        """Give the producer back. Idempotent."""
        if self._over:
            return
        self._over = True
        if self._failed:
            self._producer.close()
        else:
            self._home.give_back(self._key, self._producer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def lend(client: PulsarClient, topic: str, schema: Schema | None = None) -> Lent:
    """Return a producer of this client for one caller alone. The caller gives it back by `close`, and the next caller may get it.
    Raises as `Producer`.
    """

    def producers(of: PulsarClient) -> Producers:
        return Producers(lambda name, given: open_shared(of, name, given))

    return client.kept(Producers, producers).lend(topic, schema)
