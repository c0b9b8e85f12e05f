"""A topic that another program creates at the same time."""

from __future__ import annotations

import itertools

import pytest

from pulsar_protocol.errors import ConnectionLost, OlderModel, PulsarError, TopicMissing
from spark_txn_sink.pulsar import admin
from spark_txn_sink.pulsar.admin import when_created


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
