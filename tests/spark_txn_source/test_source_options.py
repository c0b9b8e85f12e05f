"""Tests of the options of the source: the meaning of their combinations, and the error of each invalid combination."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.common.errors import OffsetOutOfRange, OptionError
from metadata.common.service import VARIABLE
from metadata.read.selection import AtLog, AtTime, Earliest, Latest, Pattern, Topics
from metadata.records.names import TopicName, segment_name, topic_name
from spark_txn_source.options import SOURCE, ReadOptions

URL = "memory://t"
FULL = "topic://public/default/a"
SEGMENT = "segment://public/default/a/0000-7fff-1"
SIBLING = "segment://public/default/a/8000-ffff-2"


def batch(**options: Any) -> ReadOptions:
    return ReadOptions.parse({"serviceUrl": URL, **options}, streaming=False)


def stream(**options: Any) -> ReadOptions:
    return ReadOptions.parse({"serviceUrl": URL, **options}, streaming=True)


def topics(*names: str) -> Topics:
    return Topics(tuple(segment_name(n) if n.startswith("segment:") else topic_name(n) for n in names))


def test_defaults_of_a_batch() -> None:
    read = batch(topic="a")
    assert str(read.service_url) == URL
    assert read.selection == topics(FULL)
    assert (read.streaming, read.start, read.end) == (False, Earliest(), Latest())
    assert (read.max_rows_per_trigger, read.max_bytes_per_trigger) == (None, None)
    assert (read.min_partitions, read.max_partition_bytes) == (None, 128 * 1024 * 1024)
    assert (read.isolation_level, read.fail_on_data_loss) == ("read_committed", True)
    assert (read.topics_changed, read.schema_change) == ("fail", "fail")
    assert (read.columns, read.include_metadata) == (None, False)
    assert (read.value_format, read.schema_version) == ("columns", None)


def test_segments_of_one_topic_are_read_by_its_schema() -> None:
    read = batch(topics=f"{SEGMENT},{SIBLING}", valueFormat="AVRO", schemaVersion="3", includeMetadata="true")
    assert (read.value_format, read.schema_version) == ("avro", 3)


def test_defaults_of_a_stream() -> None:
    read = stream(topic="a")
    assert (read.streaming, read.start, read.end) == (True, Latest(), Latest())
    assert (read.min_partitions, read.max_partition_bytes) == (None, None)


def test_everything_given_in_any_case() -> None:
    read = ReadOptions.parse(
        {
            "SERVICEURL": URL,
            "topicspattern": "topic://public/default/.*",
            "StartingOffsets": '{"log": 41}',
            "maxrowspertrigger": "10",
            "MAXBYTESPERTRIGGER": "1m",
            "minoffsetspertrigger": "5",
            "MaxTriggerDelay": "1.5m",
            "minPartitions": "3",
            "maxPartitionBytes": "64k",
            "isolationLevel": "READ_COMMITTED",
            "failOnDataLoss": "FALSE",
            "topicsChanged": "Continue",
            "schemaChange": "ignorenewcolumns",
            "columns": "b, a",
            "includeMetadata": "true",
            "checkpointlocation": "/c",
            "queryName": "q",
        },
        streaming=True,
    )
    assert read.selection == Pattern("topic://public/default/.*")
    assert read.start == AtLog(41)
    assert (read.max_rows_per_trigger, read.max_bytes_per_trigger) == (10, 1024 * 1024)
    assert (read.min_rows_per_trigger, read.max_trigger_delay) == (5, 90)
    assert (read.min_partitions, read.max_partition_bytes) == (3, 65536)
    assert (read.fail_on_data_loss, read.topics_changed, read.schema_change) == (False, "continue", "ignoreNewColumns")
    assert (read.columns, read.include_metadata) == (("b", "a"), True)
    assert pickle.loads(pickle.dumps(read)) == read


def test_values_of_python_as_scan_passes_them() -> None:
    read = batch(topics=["a", "x,y"], startingOffsets={"log": 3}, includeMetadata=True, minPartitions=2, columns=None)
    assert read.selection == topics(FULL, "topic://public/default/x,y")
    assert (read.start, read.include_metadata, read.min_partitions, read.columns) == (AtLog(3), True, 2, None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"path": "a"}, topics("a")),
        ({"path": "a", "topic": FULL}, topics("a")),
        ({"path": FULL, "topic": "a"}, topics("a")),
        ({"topic": "topic://t/n/x"}, topics("topic://t/n/x")),
        ({"topic": SEGMENT}, topics(SEGMENT)),
        ({"path": SEGMENT}, topics(SEGMENT)),
        ({"topics": f"b, {FULL},a , b"}, topics("b", "a")),
        ({"topics": f"{SEGMENT},{SIBLING},{SEGMENT}"}, topics(SEGMENT, SIBLING)),
        ({"topics": f"b,{SEGMENT}"}, topics("b", SEGMENT)),
        ({"topics": '["x,y", "a"]'}, topics("x,y", "a")),
        ({"paths": '["b","a","b"]'}, topics("b", "a")),
        ({"topicsPattern": "topic://t/n/a.*"}, Pattern("topic://t/n/a.*")),
    ],
)
def test_each_selection_option_selects_its_topics(options: dict[str, str], expected: Topics | Pattern) -> None:
    assert batch(**options).selection == stream(**options).selection == expected


def test_selection_of_topics() -> None:
    selection = topics("b", SEGMENT, SIBLING)
    assert selection.topics == (topic_name("b"), topic_name("a"))
    assert selection.segments(topic_name("b")) is None
    assert selection.segments(topic_name("a")) == (segment_name(SEGMENT), segment_name(SIBLING))


def test_a_pattern_matches_full_names_from_end_to_end() -> None:
    pattern = Pattern("topic://public/default/a")
    assert pattern.matches(TopicName("public", "default", "a"))
    assert not pattern.matches(TopicName("public", "default", "ab"))
    assert not Pattern("a").matches(TopicName("public", "default", "a"))
    assert pattern.key == {"pattern": "topic://public/default/a"}


@given(st.permutations(["b", FULL, "topic://t/n/a", SEGMENT.replace("/a/", "/c/")]))
def test_the_key_of_a_selection_does_not_depend_on_order(names: list[str]) -> None:
    key = batch(topics=names).selection.key
    assert key == batch(topics=sorted(names)).selection.key == json.loads(json.dumps(key))


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({"startingOffsets": "EARLIEST", "endingOffsets": "Latest"}, Earliest(), Latest()),
        ({"startingOffsets": "latest"}, Latest(), Latest()),
        ({"startingOffsets": '{"log":0}', "endingOffsets": '{"log":0}'}, AtLog(0), AtLog(0)),
        ({"startingTimestamp": "5", "endingTimestamp": "5"}, AtTime(5), AtTime(5)),
        ({"startingTimestamp": "1970-01-01T00:00:00.0005Z"}, AtTime(1), Latest()),
        ({"endingTimestamp": "1970-01-01T00:00:00.0005Z"}, Earliest(), AtTime(0)),
        ({"startingOffsets": '{"log":9}', "endingTimestamp": "5"}, AtLog(9), AtTime(5)),
    ],
)
def test_start_and_end_options_set_the_range(options: dict[str, str], start: object, end: object) -> None:
    read = batch(topic="a", **options)
    assert (read.start, read.end) == (start, end)


BOTH = [
    # what to read
    ({}, "no topic to read; load(name); topicsPattern"),
    ({"topic": ""}, "option topic; empty"),
    ({"path": " "}, "option path; empty"),
    ({"path": "a", "topic": "b"}, "topic://public/default/a; topic://public/default/b; differ"),
    ({"topic": "a", "topics": "a"}, "2 ways; topic, topics; Give one"),
    ({"path": "a", "topics": "a,b"}, "2 ways; load(name), topics"),
    ({"path": "a", "topicsPattern": ".*"}, "2 ways; load(name), topicsPattern"),
    ({"topics": "a", "topicsPattern": ".*"}, "2 ways; topics, topicsPattern"),
    ({"paths": '["a"]', "topic": "a", "topicsPattern": ".*"}, "3 ways; topic, load([...]), topicsPattern"),
    ({"topic": "a b"}, "option topic; 'a b' is not a topic name; topic://tenant/namespace/name"),
    ({"topic": "topic://t/n"}, "option topic; not a topic name"),
    ({"topic": "kafka://t/n/a"}, "option topic; not a topic name"),
    ({"path": "/data/a"}, "option path; not a topic name"),
    ({"topic": "segment://t/n/a"}, "option topic; not a segment name; 0000-ffff-0"),
    ({"topics": "a,,b"}, "option topics; empty"),
    ({"topics": "a,b c"}, "option topics; 'b c' is not a topic name"),
    ({"topics": "[a"}, 'option topics; JSON list; ["a", "b"]'),
    ({"topics": "[1]"}, "option topics; texts only"),
    ({"paths": "a"}, "option paths; not a JSON list; load"),
    ({"paths": "[]"}, "option paths; empty"),
    ({"topics": f"a,{SEGMENT}"}, "segment of topic://public/default/a; twice; not both"),
    ({"topicsPattern": "a("}, "option topicsPattern; not a regular expression; topic://public/default/"),
    ({"topicsPattern": ""}, "option topicsPattern; empty"),
    # options that need the schema of one topic
    ({"valueFormat": "arvo"}, "option valueFormat; Did you mean avro?"),
    ({"schemaVersion": "-1"}, "option schemaVersion; from 0"),
    ({"schemaVersion": "latest"}, "option schemaVersion; not a whole number"),
    ({"topics": "a,b", "valueFormat": "avro"}, "valueFormat=avro needs the schema of one topic; Read each topic by itself"),
    ({"topicsPattern": "a", "valueFormat": "avro"}, "valueFormat=avro needs the schema of one topic"),
    ({"topics": f"b,{SEGMENT}", "schemaVersion": "1"}, "schemaVersion needs the schema of one topic"),
    ({"valueFormat": "avro", "columns": "x"}, "valueFormat=avro and columns; always has all fields"),
    # unknown options
    ({"topik": "a"}, "no option 'topik'; Did you mean topic?; docs/options.md"),
    ({"starting_offsets": "latest"}, "Did you mean startingOffsets?"),
    ({"startingoffset": "latest"}, "Did you mean startingOffsets?"),
    ({"maxRowPerTrigger": "1"}, "Did you mean maxRowsPerTrigger?"),
    ({"header": "true"}, "source has no option 'header'; Did you mean"),
    ({"subscribe": "a"}, "Did you mean topics?"),
    ({"maxOffsetsPerTrigger": "1"}, "Did you mean maxRowsPerTrigger?"),
    ({"pat": "1"}, "Did you mean"),
    ({"keyColumn": "a"}, "keyColumn is an option of the sink; write the topic"),
    ({"TXNAPPID": "a"}, "txnAppId is an option of the sink"),
    ({"topic": "a", "TOPIC": "b"}, "topic is given twice"),
    # values
    ({"isolationLevel": "read_comitted"}, "option isolationLevel; Did you mean read_committed?"),
    ({"failOnDataLoss": "no"}, "option failOnDataLoss; true or false"),
    ({"includeMetadata": "1"}, "option includeMetadata; true or false"),
    ({"minPartitions": "0"}, "option minPartitions; from 1"),
    ({"minPartitions": "many"}, "option minPartitions; not a whole number"),
    ({"maxPartitionBytes": "0"}, "option maxPartitionBytes; bytes"),
    ({"maxPartitionBytes": "1.5g"}, "option maxPartitionBytes; 128m"),
    ({"columns": ""}, "option columns; empty"),
    ({"columns": "a,,b"}, "option columns; empty"),
    ({"columns": "a,A"}, "option columns; A is named twice"),
    ({"columns": '["a", 1]'}, "option columns; texts only"),
    ({"columns": 1.5}, "option columns; type float"),
    ({"startingOffsets": "newest"}, 'option startingOffsets; neither a known word nor JSON; {"log": 41}'),
    ({"startingOffsets": "41"}, 'option startingOffsets; not a JSON object; {"log": 41}'),
    ({"startingOffsets": '{"log":"1"}'}, "option startingOffsets; whole number"),
    ({"startingOffsets": '{"log":1.0}'}, "option startingOffsets; whole number"),
    ({"startingOffsets": '{"log":true}'}, "option startingOffsets; whole number"),
    ({"startingOffsets": '{"log":-1}'}, "option startingOffsets; from 0"),
    ({"startingOffsets": '{"log":9223372036854775808}'}, "option startingOffsets; more than 64 bits"),
    ({"startingOffsets": '{"log":1,"log":2}'}, "option startingOffsets; twice"),
    ({"startingOffsets": '{"log":1,"reads":["a"]}'}, "option startingOffsets; unknown fields (reads)"),
    ({"startingOffsets": '{"log":1,"cluster":7}'}, "option startingOffsets; cluster is not a text"),
    ({"startingOffsets": '{"log":1,"acked":{"segment://a":["1:0"]}}'}, "option startingOffsets; acknowledged; subscription"),
    ({"startingOffsets": "{'log': 1, 'x'}"}, "option startingOffsets; neither a known word nor JSON"),
    ({"startingOffsets": '{"topic-0":{"0":1}}'}, "option startingOffsets; field log"),
    ({"startingOffsets": "[" * 100_000}, "option startingOffsets; neither"),
    ({"startingOffsets": ""}, "option startingOffsets; neither"),
    ({"startingTimestamp": "2025-01-01T00:00:00"}, "option startingTimestamp; no time zone; Z"),
    ({"startingTimestamp": "1735689600"}, "option startingTimestamp; seconds; 1735689600000"),
    ({"startingTimestamp": "soon"}, "option startingTimestamp; ISO-8601"),
    ({"startingOffsets": "latest", "startingTimestamp": "5"}, "startingOffsets and startingTimestamp; one start"),
    ({"subscription": "s", "startingOffsets": "latest"}, "subscription and startingOffsets; at its cursor"),
    ({"subscription": "s", "startingTimestamp": "5"}, "subscription and startingTimestamp; at its cursor"),
    ({"serviceUrl": "data/x"}, "option serviceUrl; no scheme"),
    ({"serviceUrl": "zk://u:hunter2@h/c"}, "option serviceUrl; TXNSEGMENT_"),
]
ONLY_BATCH = [
    ({"subscription": "s", "acknowledged": "{}"}, "subscription and acknowledged; selects the rows to leave out; txn.read"),
    ({"acknowledged": "5:2"}, "option acknowledged; txn.read did not set it"),
    ({"acknowledged": '{"a": ["5:2"]}'}, "option acknowledged; txn.read did not set it; not a segment name"),
    ({"acknowledged": f'{{"{SEGMENT}": ["5-2"]}}'}, "option acknowledged; txn.read did not set it; not a position"),
    ({"endingOffsets": "earliest"}, "option endingOffsets; cannot end at its start"),
    ({"endingOffsets": "end"}, "option endingOffsets; neither"),
    ({"endingOffsets": "latest", "endingTimestamp": "5"}, "endingOffsets and endingTimestamp; one end"),
    ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger cannot be used in a batch read; no triggers"),
    ({"maxRowsPerTrigger": "10"}, "maxRowsPerTrigger cannot be used in a batch read; no triggers; stream"),
    ({"maxBytesPerTrigger": "10"}, "maxBytesPerTrigger cannot be used in a batch read; no triggers"),
    ({"topicsChanged": "continue"}, "topicsChanged cannot be used in a batch read; no checkpoint"),
    ({"schemaChange": "fail"}, "schemaChange cannot be used in a batch read; no checkpoint"),
]
ONLY_STREAM = [
    ({"acknowledged": "{}"}, "acknowledged cannot be used in a stream read; checkpoint"),
    ({"endingOffsets": "latest"}, "endingOffsets cannot be used in a stream read; has no end; batch"),
    ({"endingTimestamp": "5"}, "endingTimestamp cannot be used in a stream read; has no end"),
    ({"isolationLevel": "read_uncommitted"}, "isolationLevel; read_uncommitted; batch"),
    ({"minOffsetsPerTrigger": "0"}, "option minOffsetsPerTrigger; from 1"),
    ({"maxTriggerDelay": "15"}, "option maxTriggerDelay; not a duration; unit"),
    ({"maxTriggerDelay": "15m"}, "without minOffsetsPerTrigger; Give both"),
    ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger; from 1"),
    ({"maxRowsPerTrigger": "1e6"}, "option maxRowsPerTrigger; not a whole number"),
    ({"maxBytesPerTrigger": "lots"}, "option maxBytesPerTrigger; 128m"),
    ({"topicsChanged": "ignore"}, "option topicsChanged; fail, continue"),
    ({"schemaChange": "ignoreNewColumn"}, "option schemaChange; Did you mean ignoreNewColumns?"),
]


def refusal(options: dict[str, Any], *, streaming: bool) -> str:
    chosen = any(k.lower() in ("topic", "topics", "topicspattern", "path", "paths") for k in options)
    whole = {"serviceUrl": URL, **({} if chosen or not options else {"topic": "a"}), **options}
    with pytest.raises(OptionError) as error:
        ReadOptions.parse(whole, streaming=streaming)
    assert error.value.advice
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "words", "modes"),
    [(o, w, (False, True)) for o, w in BOTH]
    + [(o, w, (False,)) for o, w in ONLY_BATCH]
    + [(o, w, (True,)) for o, w in ONLY_STREAM],
    ids=lambda v: str(v)[:60],
)
def test_impossible_source_options_are_refused_with_advice(options: dict[str, Any], words: str, modes: tuple[bool, ...]) -> None:
    for streaming in modes:
        message = refusal(options, streaming=streaming)
        assert "hunter2" not in message
        assert len(message) < 1000
        for word in words.split("; "):
            assert word in message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": '{"log":5}', "endingOffsets": '{"log":4}'}, ["log 5", "log 4"]),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, ["5 ms", "4 ms"]),
    ],
)
def test_a_start_after_the_end(options: dict[str, str], words: list[str]) -> None:
    for parse in (lambda o: ReadOptions.parse(o, streaming=False), ReadOptions.parse_common):
        with pytest.raises(OffsetOutOfRange, match="at or after the start") as error:
            parse({"serviceUrl": URL, "topic": "a", **options})
        assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    "name", ["password", "zk.password", "passwd", "clientSecret", "auth-token", "sasl.jaas.config", "access_key"]
)
def test_credentials_are_refused_and_not_shown(name: str) -> None:
    message = refusal({name: "hunter2"}, streaming=False)
    assert name in message
    assert "credential" in message
    assert "environment" in message
    assert "hunter2" not in message


def test_the_environment_names_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "memory://of-the-environment")
    assert str(ReadOptions.parse({"topic": "a"}, streaming=False).service_url) == "memory://of-the-environment"
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(OptionError, match=r"serviceUrl.*TXNSEGMENT_SERVICE_URL"):
        ReadOptions.parse({"topic": "a"}, streaming=False)


def test_common_options_are_parsed_without_a_mode() -> None:
    """Spark asks a source for its schema before the source knows whether the read is a batch or a stream."""
    options = {"serviceUrl": URL, "path": "a", "columns": "x", "includeMetadata": "true"}
    for mode in ({"endingOffsets": "latest"}, {"maxRowsPerTrigger": "1"}, {"isolationLevel": "read_uncommitted"}):
        common = ReadOptions.parse_common(options | mode)
        assert (str(common.service_url), common.selection) == (URL, topics("a"))
        assert (common.columns, common.include_metadata) == (("x",), True)


@pytest.mark.parametrize("options", [o for o, _ in BOTH], ids=lambda v: str(v)[:60])
def test_options_invalid_in_every_mode_are_refused_without_a_mode(options: dict[str, Any]) -> None:
    chosen = any(k.lower() in ("topic", "topics", "topicspattern", "path", "paths") for k in options)
    with pytest.raises(OptionError):
        ReadOptions.parse_common({"serviceUrl": URL, **({} if chosen or not options else {"topic": "a"}), **options})


@given(st.sampled_from([o.name for o in SOURCE.options]), st.randoms(use_true_random=False))
def test_names_are_found_in_any_case(name: str, random: Any) -> None:
    values = {
        "serviceUrl": URL,
        "startingOffsets": "latest",
        "endingOffsets": "latest",
        "isolationLevel": "read_committed",
        "failOnDataLoss": "true",
        "topicsChanged": "fail",
        "schemaChange": "fail",
        "includeMetadata": "true",
        "acknowledged": "{}",
        "maxTriggerDelay": "15m",
        "valueFormat": "columns",
    }
    written = "".join(random.choice([c.lower(), c.upper()]) for c in name)
    (option,) = (o for o in SOURCE.options if o.name == name)
    assert option in SOURCE.read({written: values.get(name, "7")}, streaming=None)
