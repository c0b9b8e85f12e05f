"""Appends a `Settled` record to a topic's writers' log (`pulsar_protocol.sent_log`) from time to time. This record says which
earlier records are settled, which means that readers of the newest rows do not need them. So such a reader reads few records,
however many writes there were.
"""

from __future__ import annotations

import logging
from typing import Final

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.layout import Position
from pulsar_protocol.log_holding import release
from pulsar_protocol.sent_log import log_segment, record_sent
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.whole_cuts import settled
from spark_txn_sink.pulsar.attempts import Opened

log = logging.getLogger("txnsegment.sink.pulsar")
EVERY: Final = 500
"""After this many records in the log one writer appends a `Settled` record."""


def is_due(opened: Position, recorded: Position) -> bool:
    """Return whether this write appends a `Settled` record. `opened`, `recorded`: the positions of the write's first and last
    record in the log. A `Settled` record is due if `opened` and the entry after `recorded` lie in different ledgers, or in
    different blocks of `EVERY` entries, or if `opened` is the first entry of a ledger: earlier ledgers may be gone, and the record
    tells readers that they need none of them.
    """
    return opened.entry == 0 or (opened.ledger, opened.entry // EVERY) != (recorded.ledger, (recorded.entry + 1) // EVERY)


def settle(client: PulsarClient, topic: str, opened: Opened, recorded: Position) -> None:
    """Append a `Settled` record if one is due (`is_due`), and let the broker remove the records that the `Settled` before it has
    named. The caller has committed the write. An error is only logged, because the next write for which a record is due tries
    again.
    """
    if not is_due(opened.place, recorded):
        return
    try:
        sent = SentLog(client, topic)
        record_sent(client, log_segment(client, topic), settled(client, topic, sent))
        release(client, topic, sent.settled)
    except TxnSegmentError as error:
        log.warning("%s: the write is committed, but what is settled was not recorded: %s", topic, error)
