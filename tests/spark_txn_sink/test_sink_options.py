"""Tests of the options of the sink: the meaning of their combinations, and the error of each invalid combination."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from metadata.common.errors import OptionError
from metadata.common.service import VARIABLE
from metadata.records.names import topic_name
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.planned import TaskOptions

URL = "memory://t"
TOKEN = {"txnAppId": "etl", "txnVersion": "0"}


def batch(**options: Any) -> WriteOptions:
    return WriteOptions.parse({"serviceUrl": URL, **options}, streaming=False)


def stream(**options: Any) -> WriteOptions:
    return WriteOptions.parse({"serviceUrl": URL, **options}, streaming=True)


def test_defaults() -> None:
    for write in (batch(topic="a"), stream(path="a"), batch(path="a", topic="topic://public/default/a")):
        assert (str(write.service_url), write.topic) == (URL, topic_name("a"))
        assert (write.key_column, write.segments, write.auto_create) == (None, 1, True)
        assert (write.txn_app_id, write.txn_version, write.txn_timeout_ms) == (None, None, 30_000)
        assert (write.compression, write.entry_bytes, write.entry_rows) == ("zstd", 16 * 1024 * 1024, 1_000_000)


@pytest.mark.parametrize("option", ["adminUrl", "HASHBITS", "metadataUrl"])
def test_an_option_of_pulsar_clusters_asks_for_their_service_url(option: str) -> None:
    """Somebody gives the URL of a Pulsar cluster's REST interface as the service URL."""
    with pytest.raises(OptionError, match="the service URL is not one of Pulsar") as raised:
        WriteOptions.parse({option: "low", "topic": "t", "serviceUrl": "http://host:8080"}, streaming=False)
    assert "pulsar://host:6650" in raised.value.advice


def test_everything_given_in_any_case() -> None:
    write = WriteOptions.parse(
        {
            "serviceurl": URL,
            "TOPIC": "topic://t/n/a",
            "keycolumn": "k.x",
            "Segments": "4",
            "autoCREATE": "False",
            "txnappid": " etl ",
            "txnversion": "7",
            "txntimeoutms": "1000",
            "compression": "LZ4",
            "entrybytes": "1m",
            "entryrows": "10",
        },
        streaming=False,
    )
    assert write.topic == topic_name("topic://t/n/a")
    assert (write.key_column, write.segments, write.auto_create) == ("k.x", 4, False)
    assert (write.txn_app_id, write.txn_version, write.txn_timeout_ms) == ("etl", 7, 1000)
    assert (write.compression, write.entry_bytes, write.entry_rows) == ("lz4", 1024 * 1024, 10)
    assert pickle.loads(pickle.dumps(write)) == write


def test_values_of_avro() -> None:
    for write in (batch(topic="a", valueFormat="avro"), stream(topic="a", valueFormat="Avro", autoCreate="false", keyColumn="k")):
        assert (write.value_format, write.schema_version) == ("avro", None)
    assert batch(topic="a", valueFormat="avro", schemaVersion="2").schema_version == 2
    assert batch(topic="a").value_format == "columns"


def test_an_application_without_a_version_names_a_stream() -> None:
    write = stream(topic="a", txnAppId="etl", checkpointlocation="/c", queryname="q")
    assert (write.txn_app_id, write.txn_version, write.streaming) == ("etl", None, True)


def test_version_zero_is_a_version() -> None:
    assert batch(topic="a", **TOKEN).txn_version == 0


def test_tasks_get_nothing_of_the_metadata_store() -> None:
    tasks = WriteOptions.parse({"serviceUrl": "zk://a-host:2181/c", "topic": "a", "keyColumn": "k"}, streaming=True).for_tasks()
    assert tasks == TaskOptions(topic_name("a"), "k", "zstd", 16 * 1024 * 1024, 1_000_000)
    assert b"a-host" not in pickle.dumps(tasks)
    assert pickle.loads(pickle.dumps(tasks)) == tasks


BOTH = [
    ({"valueFormat": "json"}, "option valueFormat; columns, avro"),
    ({"schemaVersion": "1"}, "schemaVersion is given without valueFormat=avro; both, or neither"),
    ({"schemaVersion": "1", "valueFormat": "columns"}, "schemaVersion is given without valueFormat=avro"),
    ({"valueFormat": "avro", "segments": "2"}, "valueFormat=avro and segments; Leave segments out"),
    ({"valueFormat": "avro", "mergeSchema": "true"}, "valueFormat=avro and mergeSchema; Leave mergeSchema out"),
    ({"valueFormat": "avro", "autoCreate": "true"}, "valueFormat=avro and autoCreate; Leave autoCreate out"),
    ({}, "no topic to write to; save(name), start(name)"),
    ({"topic": ""}, "option topic; empty"),
    ({"topic": "a b"}, "option topic; not a topic name"),
    ({"path": "/data/a"}, "option path; not a topic name"),
    ({"path": "a", "topic": "b"}, "topic://public/default/a; topic://public/default/b; differ"),
    ({"topic": "segment://public/default/a/0000-ffff-0"}, "option topic; segment; routes rows"),
    ({"paths": '["a"]'}, "option paths; one topic"),
    ({"topics": "a"}, "topics is an option of the source; read the topic"),
    ({"topicsPattern": ".*"}, "topicsPattern is an option of the source"),
    ({"startingoffsets": "earliest"}, "startingOffsets is an option of the source"),
    ({"maxRowsPerTrigger": "1"}, "maxRowsPerTrigger is an option of the source"),
    ({"keyColum": "k"}, "no option 'keyColum'; Did you mean keyColumn?"),
    ({"txnAppld": "k"}, "Did you mean txnAppId?"),
    ({"codec": "zstd"}, "sink has no option 'codec'; Did you mean"),
    ({"outputMode": "append"}, "sink has no option 'outputMode'"),
    ({"asyncProgressTrackingEnabled": "true"}, "sink has no option 'asyncProgressTrackingEnabled'"),
    ({"keyColumn": " "}, "option keyColumn; empty"),
    ({"segments": "0"}, "option segments; from 1 to 1024"),
    ({"segments": "1025"}, "option segments; from 1 to 1024"),
    ({"segments": "-1"}, "option segments; from 1"),
    ({"segments": "four"}, "option segments; not a whole number"),
    ({"autoCreate": "off"}, "option autoCreate; true or false"),
    ({"txnAppId": ""}, "option txnAppId; empty"),
    ({"txnAppId": "a\nb"}, "option txnAppId; printable"),
    ({"txnAppId": "a" * 513}, "option txnAppId; 512"),
    ({"txnTimeoutMs": "30"}, "option txnTimeoutMs; milliseconds from 1000 to 300000"),
    ({"txnTimeoutMs": "300001"}, "option txnTimeoutMs; milliseconds from 1000 to 300000"),
    ({"txnTimeoutMs": "30s"}, "option txnTimeoutMs; milliseconds; digits only"),
    ({"compression": "gzip"}, "option compression; zstd, lz4, snappy, none"),
    ({"compression": "zsdt"}, "option compression; Did you mean zstd?"),
    ({"compression": "uncompressed"}, "option compression; zstd, lz4, snappy, none"),
    ({"entryBytes": "0"}, "option entryBytes; bytes"),
    ({"entryBytes": "2g"}, "option entryBytes; bytes"),
    ({"entryBytes": "big"}, "option entryBytes; 128m"),
    ({"entryRows": "0"}, "option entryRows; from 1"),
    ({"entryRows": "2147483648"}, "option entryRows; 2147483647"),
    ({"serviceUrl": "file://data"}, "option serviceUrl; not absolute; file:///data"),
    ({"serviceUrl": "zk://u:hunter2@h/c"}, "option serviceUrl; TXNSEGMENT_"),
    ({"zkPassword": "hunter2"}, "'zkPassword' looks like a credential; environment"),
]
ONLY_BATCH = [
    ({"txnVersion": "1"}, "txnVersion is given without txnAppId; both, or neither"),
    ({"txnAppId": "etl"}, "txnAppId is given without txnVersion; both"),
    ({**TOKEN, "txnVersion": "-1"}, "option txnVersion; from 0"),
    ({**TOKEN, "txnVersion": "1.0"}, "option txnVersion; not a whole number"),
    ({**TOKEN, "txnVersion": "9223372036854775808"}, "option txnVersion; from 0"),
    ({"txnStaging": "u1", **TOKEN}, "txnStaging and txnAppId and txnVersion; sets these itself; Leave txnAppId and txnVersion out"),
    ({"txnStaging": "u1", "txnTimeoutMs": "1000"}, "txnStaging and txnTimeoutMs; timeout="),
    ({"txnStaging": "../u1"}, "option txnStaging; names no transaction; txn.options"),
]
ONLY_STREAM = [
    ({"txnVersion": "1"}, "txnVersion cannot be used in a stream write; batch id"),
    (TOKEN, "txnVersion cannot be used in a stream write; batch id; Leave it out"),
    ({"txnStaging": "u1"}, "txnStaging cannot be used in a stream write; foreachBatch"),
]


@pytest.mark.parametrize(
    ("options", "words", "modes"),
    [(o, w, (False, True)) for o, w in BOTH]
    + [(o, w, (False,)) for o, w in ONLY_BATCH]
    + [(o, w, (True,)) for o, w in ONLY_STREAM],
    ids=lambda v: str(v)[:60],
)
def test_impossible_sink_options_are_refused_with_advice(options: dict[str, Any], words: str, modes: tuple[bool, ...]) -> None:
    topic = {} if not options or options.keys() & {"topic", "path", "paths"} else {"topic": "a"}
    for streaming in modes:
        with pytest.raises(OptionError) as error:
            WriteOptions.parse({"serviceUrl": URL, **topic, **options}, streaming=streaming)
        message = str(error.value)
        assert error.value.advice
        assert "hunter2" not in message
        for word in words.split("; "):
            assert word in message


def test_the_environment_names_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "memory://of-the-environment")
    assert str(WriteOptions.parse({"topic": "a"}, streaming=True).service_url) == "memory://of-the-environment"
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(OptionError, match=r"serviceUrl.*TXNSEGMENT_SERVICE_URL"):
        WriteOptions.parse({"topic": "a"}, streaming=True)
