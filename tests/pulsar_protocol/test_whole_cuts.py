"""The cuts of a reader that has read some segments to their ends, and does not know their positions any more."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Cut
from pulsar_protocol.layout import Position
from pulsar_protocol.sent_log import Sent
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.whole_cuts import WholeCuts
from tests.support.pulsar_layouts import layout_of

LAYOUT = layout_of(0, 0x8000)
ENDED, OTHER = (one.name for one in LAYOUT.segments.values())
TXN = TxnId(0, 1)
LOG = "log"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> SentLog:
    """Return the records of a transaction with one entry in each segment. Nothing asks a broker."""
    made = SentLog(cast("PulsarClient", None), LAYOUT.topic, {LOG: Position(9, 5)})
    made._sent[TXN] = Sent(TXN, {ENDED: (Position(1, 0), Position(1, 0)), OTHER: (Position(2, 0), Position(2, 0))})
    made._places[TXN] = (LOG, Position(9, 3))
    monkeypatch.setattr(made, "catch_up", lambda: None)
    return made


def never() -> Any:
    raise AssertionError("the layout has all segments")


def test_a_segment_that_was_read_to_its_end_does_not_hold_back_the_others(sent: SentLog) -> None:
    cuts = {OTHER: Cut(Position(2, 7), Position(2, 7), True, False)}
    newest = WholeCuts(sent, never).newest(LAYOUT, {OTHER: Position(2, 0)}, frozenset({ENDED}), cuts)
    assert newest.positions == {OTHER: Position(2, 7)}


def test_no_record_is_kept_for_rows_in_a_segment_that_was_read_to_its_end(sent: SentLog) -> None:
    read = {OTHER: Position(2, 0)}
    assert sent.needed_after(read)[LOG] == Position(9, 2), "it is not known that the other row was read"
    assert sent.needed_after(read, {ENDED})[LOG] == Position(9, 5)
    sent.forget_to(read, {ENDED})
    assert not sent.segments
