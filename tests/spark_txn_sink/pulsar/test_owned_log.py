"""The connection of a log of one owner, which the owner and the threads that abort transactions share. No broker runs."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import ConnectionLost
from spark_txn_sink.pulsar.owned_log import Codec, OwnedLog

T = TxnId(0, 7)
CODEC: Codec[bytes] = Codec(lambda record: record, lambda data: data, bytes, bytes)


class Client:
    """A stand-in for a client. `ended`: the transactions that it was asked to end."""

    def __init__(self) -> None:
        self.ended: list[TxnId] = []
        self.closed = False

    def end(self, txn: TxnId, *, commit: bool) -> None:
        self.ended.append(txn)

    def close(self) -> None:
        self.closed = True


def log_of(connect: Any) -> OwnedLog[bytes]:
    return OwnedLog(lambda: cast("PulsarClient", connect()), "topic://a/b/log", None, CODEC, "fencing")


def test_a_closed_log_connects_no_more() -> None:
    """An abort that nobody waits for may be repeated after the owner has closed the log."""
    made: list[Client] = []

    def connect() -> Client:
        made.append(Client())
        return made[-1]

    log = log_of(connect)
    log.end(T, commit=False)
    log.drop()
    log.end(T, commit=False)
    log.close()
    with pytest.raises(ConnectionLost, match="topic://a/b/log was closed"):
        log.end(T, commit=False)
    log.close()
    assert [(one.ended, one.closed) for one in made] == [([T], True), ([T], True)]


def test_threads_that_need_the_connection_at_the_same_time_share_one() -> None:
    made: list[Client] = []

    def connect() -> Client:
        made.append(Client())
        if len(made) == 1:
            other.start()
            other.join(0.2)  # without a lock it would connect, too
        return made[-1]

    log = log_of(connect)
    other = threading.Thread(target=lambda: log.end(T, commit=False), daemon=True)
    log.end(T, commit=False)
    other.join(20)
    log.close()
    assert [(one.ended, one.closed) for one in made] == [([T, T], True)]
