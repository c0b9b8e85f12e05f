"""Tests of the topics of a read from Pulsar, and of the offset of a stream from several topics. They need no broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from metadata.common.errors import OffsetOutOfRange, OptionError
from pulsar_protocol.layout import EARLIEST, Position
from spark_txn_source.pulsar.offsets import PulsarOffset
from spark_txn_source.pulsar.option_table import At
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.selection import TopicsPattern
from spark_txn_source.pulsar.several import of_topic
from spark_txn_source.pulsar.several_offsets import SeveralOffset, read_in

A, B = "topic://public/default/a", "topic://public/default/b"
URL = {"serviceUrl": "pulsar://localhost:6650"}


def parse(streaming: bool | None = True, **more: str) -> PulsarReadOptions:
    return PulsarReadOptions.parse({**URL, **more}, streaming=streaming)


def offset(topic: str, entry: int, **more: Any) -> dict[str, Any]:
    return PulsarOffset(topic, 1, {f"{topic}-0": Position(3, entry)}, **more).to_json()


def test_topics_are_named_once_and_in_full() -> None:
    assert parse(topics="b, a, b").selection == (B, A)
    assert parse(paths='["a", "b"]').selection == (A, B)
    assert parse(topics="a").topic == A
    assert not parse(topics="a").several, "one topic has the offset of one topic"
    assert parse(topics="a, b").several


@pytest.mark.parametrize(
    ("text", "namespace"),
    [
        ("topic://public/default/.*", "public/default"),
        (r"topic://a\.b/c-d/(x|y[|]z)-[0-9]+", "a.b/c-d"),
        (r"topic://public/default/a\|b", "public/default"),
    ],
)
def test_a_pattern_names_its_namespace(text: str, namespace: str) -> None:
    assert parse(topicsPattern=text).selection == TopicsPattern(namespace, text)
    assert parse(topicsPattern=text).several


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".*", "does not begin with"),
        ("topic://public/.*", "does not begin with"),
        ("topic://public/de.*ult/x", "does not begin with"),
        ("topic://public/default/?.*", "does not begin with"),
        ("(?i)topic://public/default/.*", "does not begin with"),
        ("topic://public/default/a|topic://other/one/b", "several namespaces"),
        ("topic://public/default/(a|b)|topic://other/one/b", "several namespaces"),
        ("persistent://public/default/.*", "does not begin with"),
        ("topic://public/default/(", "no?t? ?a? regular expression"),
        ("topic://public/default/(a+)+", "repeats a group"),
    ],
)
def test_a_pattern_of_no_single_namespace_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(topicsPattern=text)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"topic": "a", "topics": "b, c"}, "given in 2 ways: topic, topics"),
        ({"path": "a", "topicsPattern": "topic://public/default/.*"}, r"given in 2 ways: load\(name\), topicsPattern"),
        ({}, "no topic to read"),
        ({"topics": "a, segment://public/default/a/0000-ffff-0"}, "would be read twice"),
        ({"topics": "a, b", "schemaVersion": "1"}, "several topics are read"),
        ({"topicsPattern": "topic://public/default/.*", "schemaVersion": "1"}, "several topics are read"),
        ({"topics": "a, b", "startingOffsets": '{"topics": []}'}, "field topics"),
        ({"topics": "a, b", "startingOffsets": '{"topics": {}, "more": 1}'}, "unknown fields"),
        ({"topics": "a, b", "startingOffsets": '{"topics": {"a": {}}}'}, "field segments"),
    ],
)
def test_what_cannot_work_is_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**more)


def test_each_topic_has_its_share_of_the_limits_and_its_positions() -> None:
    start = SeveralOffset({A: offset(A, 4), B: offset(B, 5)}).to_json()
    given = parse(topics="a, b", maxRowsPerTrigger="11", maxBytesPerTrigger="1", startingOffsets=json.dumps(start))
    assert given.start == At({f"{A}-0": Position(3, 4), f"{B}-0": Position(3, 5)})
    one = of_topic(given, B, 2, {A: frozenset({f"{A}-0"}), B: frozenset({f"{B}-0"})})
    assert (one.topic, one.start, one.end) == (B, At({f"{B}-0": Position(3, 5)}), "latest")
    assert (one.max_rows_per_trigger, one.max_bytes_per_trigger) == (5, 1)


def test_an_offset_is_the_same_after_json() -> None:
    for one in (SeveralOffset({A: offset(A, 1), B: offset(B, 2, is_initial=True)}), SeveralOffset({}, "topic://a/b/.*")):
        assert SeveralOffset.of_json(json.loads(json.dumps(one.to_json()))) == one


def test_the_offset_of_one_topic_becomes_one_of_several() -> None:
    assert SeveralOffset.of_json(offset(A, 1)) == SeveralOffset({A: offset(A, 1)})


@pytest.mark.parametrize("found", [{"log": 3}, {"topics": 1}, {"topics": {"a": 1}}])
def test_an_offset_of_another_source_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(OffsetOutOfRange, match="not of Pulsar topics"):
        SeveralOffset.of_json(found)


def test_other_topics_than_those_of_the_checkpoint_are_an_error() -> None:
    named, matched = SeveralOffset({A: offset(A, 1)}), SeveralOffset({A: offset(A, 1)}, "topic://public/default/.*")
    named.check_selection((A,), "fail")
    matched.check_selection(TopicsPattern("public/default", "topic://public/default/.*"), "fail")
    for one, selection in (
        (named, (A, B)),
        (named, TopicsPattern("public/default", "topic://public/default/.*")),
        (matched, (A,)),
        (matched, TopicsPattern("public/default", "topic://public/default/a")),
    ):
        with pytest.raises(OptionError, match="topicsChanged=continue"):
            one.check_selection(selection, "fail")
        one.check_selection(selection, "continue")


def test_a_batch_reads_the_topics_whose_offsets_have_moved() -> None:
    start = SeveralOffset({A: offset(A, 1), B: offset(B, 2)})
    assert read_in(start, SeveralOffset({A: offset(A, 4), B: offset(B, 2)})) == {A: (offset(A, 1), offset(A, 4))}


def test_an_added_topic_is_read_from_its_beginning() -> None:
    ((begin, end),) = read_in(SeveralOffset({}), SeveralOffset({A: offset(A, 4)})).values()
    assert PulsarOffset.of_json(begin).segments == {}
    assert end == offset(A, 4)


def test_a_replay_of_the_first_batch_reads_no_topic_that_had_no_rows() -> None:
    """The query starts at `latest`. Spark asks for the initial offset twice, and topic A gets rows between the two requests."""
    first = SeveralOffset({A: offset(A, 1, is_initial=True), B: offset(B, 2, is_initial=True)})
    end = SeveralOffset({A: offset(A, 1, is_initial=True), B: offset(B, 5, began={f"{B}-0": EARLIEST})})
    again = SeveralOffset({A: offset(A, 9, is_initial=True), B: offset(B, 7, is_initial=True)})
    assert read_in(first, end).keys() == read_in(again, end).keys() == {B}
