"""Chaos on marker-based topics. The history checker judges recorded reads by the topic's own log. An option of the command selects
the kind of topics.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import pytest

from conformance.domains import domain, keyed, named
from conformance.history.format import Event, Poll, Row
from conformance.scenarios.driver import Place, make, planned, write_version
from conformance.scenarios.forks import Forks
from conformance.scenarios.history import Observation, commit, committed, judged, now
from conformance.scenarios.reading import Following, read_all
from metadata.records.names import is_persistent

TOPIC = named("persistent", "chaos")
BATCHES = 3


class Noted(NamedTuple):
    """The records of one run on one topic. `writer`, `readers`: the events that the writer and the readers recorded. `numbers`: the
    log number that the stream had reached after each micro-batch.
    """

    writer: list[Event]
    readers: list[Event]
    numbers: list[int]


def _observed(place: Place) -> Noted:
    """Run a job of a few batches. After each batch, read the stream up to that batch, and then read the whole topic."""
    make(place)
    planned(place)
    writer: list[Event] = [commit(now(), batch, place.topic) for batch in range(BATCHES)]
    noted, following, numbers = Observation(place.topic), Following(place.url, place.topic), []
    for batch in range(BATCHES):
        write_version(place, batch)
        writer.append(committed(now(), batch))
        began, start = now(), following.log
        rows = following.next()
        noted.poll(began, start, following.log, rows)
        numbers.append(following.log)
        noted.read(now(), read_all(place.url, place.topic), final=batch == BATCHES - 1)
    return Noted(writer, noted.events, numbers)


@pytest.mark.slow
def test_a_persistent_topic_is_judged_by_its_own_log(cluster_at: Callable[[str], Place], forks: Forks) -> None:
    """The checker accepts the records of a good run. If the last micro-batch lacks a row or has one twice, the checker finds it."""
    found: Noted = forks.call(_observed, dataclasses.replace(cluster_at("sqlite"), topic=TOPIC))
    assert judged([found.writer, found.readers]) == []
    assert found.numbers == sorted(set(found.numbers))
    assert found.numbers[0] > 0
    polls = [event for event in found.readers if isinstance(event, Poll)]
    assert [len(poll.rows) for poll in polls] == [39] * BATCHES
    assert {(poll.log, *poll.topics) for poll in polls} == {(TOPIC, TOPIC)}
    last = polls[-1]
    for rows in (last.rows[1:], (*last.rows, last.rows[0])):
        assert judged([found.writer, [_with(event, last, rows) for event in found.readers]]) != []


def _with(event: Event, poll: Poll, rows: tuple[Row, ...]) -> Event:
    return poll._replace(rows=rows) if event is poll else event


def test_the_domain_of_a_run() -> None:
    assert domain(" Persistent ") == "persistent"
    assert is_persistent(TOPIC)
    assert keyed(TOPIC, segments="4") == {}
    assert keyed(named("topic", "chaos"), segments="4") == {"keyColumn": "key", "segments": "4"}
    with pytest.raises(argparse.ArgumentTypeError, match=r"'persistant' is no domain of topics .*, the nearest is persistent"):
        domain("persistant")
