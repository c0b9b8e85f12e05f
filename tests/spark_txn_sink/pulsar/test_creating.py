"""A topic that another program creates at the same time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import ConnectionLost, OlderModel, PulsarError, TopicMissing
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar import admin
from spark_txn_sink.pulsar.admin import when_created
from spark_txn_sink.pulsar.owned_log import Codec, OwnedLog
from tests.support.fake_broker import FakeBroker, Peer, answer, refuse


def call(*answers: PulsarError | str) -> str:
    """Call a function that gives these answers, one after the other, without a pause between the calls."""
    left = iter(answers)

    def once() -> str:
        found = next(left)
        if isinstance(found, PulsarError):
            raise found
        return found

    return when_created(once, pauses=lambda: itertools.repeat(0.0))


def test_a_segment_that_the_layout_names_and_that_does_not_exist_yet_is_waited_for() -> None:
    assert call(TopicMissing("no segment"), TopicMissing("no segment"), "there") == "there"


@pytest.mark.parametrize("error", [OlderModel("a topic of the older model"), ConnectionLost("the connection broke")])
def test_an_error_that_no_creation_explains_is_raised_at_once(error: PulsarError) -> None:
    with pytest.raises(type(error)):
        call(error, "there")


def test_a_segment_that_stays_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "CREATING_SECONDS", 0.0)
    with pytest.raises(TopicMissing, match="no segment"):
        call(TopicMissing("no segment"), "there")


def layout(peer: Peer, body: Any) -> None:
    """Tell the layout of a topic of one segment."""
    segment = {"segment_id": 0, "hash_start": 0, "hash_end": 0xFFFF, "state": 0}
    peer.send("scalable_topic_update", session_id=body.session_id, dag={"epoch": 1, "segments": [segment]})


def receipt(peer: Peer, body: Any) -> None:
    place = Position(3, 0).message_id
    peer.send("send_receipt", producer_id=body.producer_id, sequence_id=body.sequence_id, message_id=place)


def test_the_segment_of_a_log_that_another_program_creates_is_waited_for() -> None:
    with FakeBroker() as broker:
        broker.on("lookup_topic", answer("lookup_topic_response", response=1, broker_service_url=broker.url, authoritative=True))
        broker.on("scalable_topic_lookup", layout)
        broker.on("subscribe", refuse(11, "TopicNotFound"), refuse(11, "TopicNotFound"), answer("success"))
        broker.on("close_consumer", answer("success"))
        broker.on("producer", answer("producer_success", producer_name="p", last_sequence_id=-1, schema_version=b""))
        broker.on("send", receipt)
        codec: Codec[str] = Codec(str.encode, bytes.decode, str, str)
        log = OwnedLog(lambda: PulsarClient(broker.url), "topic://a/b/log", None, codec, "exclusive")
        assert log.own("first") == Position(3, 0)
        log.drop()
        assert broker.count("subscribe") == 3
