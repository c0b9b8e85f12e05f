"""Records now and then which records of a topic's log are not needed by readers of the newest rows (`pulsar_protocol.sent_log`). So
the plan of a read does not grow with the number of earlier writes.
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
    """Return whether a write whose records of the log begin and end here is the one that records what is settled. One write is, for
    each `EVERY` records and for each new ledger.
    """
    return (opened.ledger, opened.entry // EVERY) != (recorded.ledger, recorded.entry // EVERY)


def settle(client: PulsarClient, topic: str, opened: Opened, recorded: Position) -> None:
    """Record what is settled, if it is due. Call it after the commit: an error is logged and changes nothing for the write, and the
    next write that is due records it.
    """
    if not is_due(opened.place, recorded):
        return
    try:
        record_sent(client, log_segment(client, topic), settled(client, topic))
    except TxnSegmentError as error:
        log.warning("%s: the write is committed, but what is settled was not recorded: %s", topic, error)
