"""Appends a record to a topic's log (`pulsar_protocol.sent_log`) from time to time. It tells which earlier records are settled:
readers of the newest rows do not need them. So such a reader reads few records, however many writes there were.
"""

from __future__ import annotations

import logging
from typing import Final

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.layout import Position
from pulsar_protocol.sent_log import log_segment, record_sent
from pulsar_protocol.whole_cuts import settled
from spark_txn_sink.pulsar.attempts import Opened

log = logging.getLogger("txnsegment.sink.pulsar")
EVERY: Final = 500
"""The number of records in the log after which one writer records what is settled."""


def is_due(opened: Position, recorded: Position) -> bool:
    """Return whether this write records what is settled. `opened`, `recorded`: its first and its last record in the log. The write
    does so if a multiple of `EVERY`, or the begin of a ledger, is between the first record and the one after the last.
    """
    return (opened.ledger, opened.entry // EVERY) != (recorded.ledger, (recorded.entry + 1) // EVERY)


def settle(client: PulsarClient, topic: str, opened: Opened, recorded: Position) -> None:
    """Record what is settled, if this write is due to (`is_due`). Call it after the commit. An error is only logged: the next write
    that is due tries again.
    """
    if not is_due(opened.place, recorded):
        return
    try:
        record_sent(client, log_segment(client, topic), settled(client, topic))
    except TxnSegmentError as error:
        log.warning("%s: the write is committed, but what is settled was not recorded: %s", topic, error)
