"""Names of the persistent:// domain: names that a namespace maps to topic://, reserved names, and the log that an error names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest
from prometheus_client import REGISTRY

from metadata.client.providers import Providers
from metadata.common.errors import OffsetOutOfRange, OptionError
from metadata.instream import trimming
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.reading import TopicReading
from metadata.instream.topics import PersistentTopics
from metadata.instream.transaction_log import TRANSACTION_LOG
from metadata.instream.trimming import TrimmedTo
from metadata.maintenance.trimming import Trimmed
from metadata.records.names import persistent_name
from txnsegment import Cluster, connect
from txnsegment.rows import committed_rows
from txnsegment.segments import report
from txnsegment.topics import PersistentDescription
from txnsegment.verify import verify

P = "persistent://public/default/p"
NEW, STANDS_FOR = "persistent://public/new/a", "topic://public/new/a"


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def write(cluster: Cluster, topic: str, *numbers: int) -> None:
    cluster.producer(topic).write(rows(*numbers))


@pytest.mark.parametrize("name", [str(TRANSACTION_LOG), "persistent://pulsar/system/mine"])
def test_a_transaction_log_takes_no_writes(cluster: Cluster, name: str) -> None:
    """A producer's entry in a transaction log would block every transaction over persistent topics permanently. So every call
    refuses to write to the log.
    """
    calls: list[Callable[[], object]] = [
        lambda: cluster.topics.create(name, schema="n bigint"),
        lambda: cluster.producer(name, plain=True),
        lambda: cluster.begin().append(name, rows(1)),
        lambda: cluster.topics.delete(name),
        lambda: cluster.topics.set_property(name, "a", "b"),
        lambda: cluster.retention.set(name, keep=timedelta(hours=1)),
        lambda: cluster.consumer(name, "s", start="earliest"),
    ]
    for call in calls:
        with pytest.raises(OptionError, match="pulsar/system"):
            call()
    cluster.topics.create(P, schema="n bigint")
    write(cluster, P, 1)
    assert [txn.segments for txn in cluster.transactions.list()] == [(P,)]


def test_persistent_names_keep_working_when_the_namespace_maps_them_to_topics(cluster: Cluster) -> None:
    """The namespace maps new persistent topics to `topic://` topics. Every call accepts the persistent name."""
    cluster.topics.create(P, schema="n bigint")
    for namespace in ("namespace://public/new", "namespace://public/default"):
        cluster.topics.set_model(namespace, "metadata")
    assert cluster.topics.create(NEW, schema="n bigint", segments=2, key="n").name == STANDS_FOR
    assert cluster.topics.describe(NEW).name == STANDS_FOR
    write(cluster, NEW, 1, 2)
    with cluster.consumer(NEW, "s", start="earliest") as consumer:
        assert sorted(message.value["n"] for message in consumer.messages(timeout=0)) == [1, 2]
    assert [found.topic for found in cluster.subscriptions.list(NEW)] == [STANDS_FOR]
    assert len(cluster.topics.split(NEW, 0).segments) == 4
    assert cluster.compact(NEW).parts == 0
    assert cluster.scaling.set(NEW, max_segments=8).max_segments == 8
    assert cluster.scaling.get(NEW) == cluster.scaling.get(STANDS_FOR)
    assert cluster.retention.set(NEW, keep=timedelta(hours=1), compact_files=4).compact_files == 4
    assert cluster.retention.get(STANDS_FOR) == cluster.retention.get(NEW)
    assert cluster.retention.trim(NEW).rows == 0
    assert cluster.topics.set_compatibility(NEW, "full") == cluster.topics.compatibility(STANDS_FOR) == "full"
    assert cluster.topics.schema(NEW) == cluster.topics.schema(STANDS_FOR)
    with pytest.raises(OptionError, match=r"topic://public/new/a is no persistent:// topic"):
        cluster.topics.properties(NEW)
    assert isinstance(cluster.topics.describe(P), PersistentDescription)  # an existing topic stays persistent
    cluster.topics.delete(NEW)
    assert [found.name for found in cluster.topics.list()] == [P]


def test_a_migrated_name_resolves_to_its_successor(cluster: Cluster) -> None:
    cluster.topics.create(P, schema="n bigint")
    write(cluster, P, 1)
    cluster.topics.migrate(P, "y")
    assert cluster.retention.set(P, keep=timedelta(hours=1)) == cluster.retention.get("y")
    assert cluster.topics.set_compatibility(P, "full") == cluster.topics.compatibility("y") == "full"
    described = cluster.topics.describe(P)
    assert isinstance(described, PersistentDescription)
    assert described.migrated_to == "topic://public/default/y"


def test_a_persistent_topic_takes_no_compaction_policy(cluster: Cluster) -> None:
    cluster.topics.create(P, schema="n bigint")
    with pytest.raises(OptionError, match="It is not compacted"):
        cluster.retention.set(P, compact_files=4)
    assert cluster.retention.set("namespace://public/default", compact_files=4).compact_files == 4


def test_a_namespace_policy_is_shown(cluster: Cluster) -> None:
    said = cluster.retention.set("namespace://public/default", keep=timedelta(hours=1), keep_bytes=-1)
    assert said.retention_bytes == -1
    shown = cluster.retention.get("namespace://public/default")
    assert (shown.retention_ms, shown.retention_bytes) == (3_600_000, None)
    cluster.topics.create(P)
    assert cluster.retention.get(P) == shown
    with pytest.raises(OptionError, match="namespace://public"):
        cluster.retention.get("namespace://public")


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: report(cluster.client, P),
        lambda cluster: verify(cluster.client, P),
        lambda cluster: list(committed_rows(cluster.client, P, 10).rows),
        lambda cluster: cluster.subscriptions.describe(P, "s"),
    ],
)
def test_a_name_is_resolved_once_by_each_call(
    cluster: Cluster, call: Callable[[Cluster], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a call resolved the name twice, a migration in between would mix readings of both models."""
    cluster.topics.create(P, schema="n bigint")
    cluster.subscriptions.create(P, "s")
    write(cluster, P, 1)
    asked = []
    select = Providers.select
    monkeypatch.setattr(Providers, "select", lambda self, names: asked.append(names) or select(self, names))
    call(cluster)
    assert asked == [[persistent_name(P)]]


def test_a_trim_by_command(cluster: Cluster) -> None:
    cluster.topics.create(P, schema="n bigint")
    for number in (1, 2):
        write(cluster, P, number)
    cluster.retention.set(P, keep_bytes=1)
    trimmed = cluster.retention.trim(P)
    assert (trimmed.segments, trimmed.rows) == (1, 2)
    assert cluster.retention.trim(P).rows == 0
    assert report(cluster.client, P).segments[0].watermark is None, "nothing of a persistent topic is folded"


def test_a_trim_reports_the_rows_that_it_trimmed_itself(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between this process's read and its trim, another sweeper trims the first of three ledgers. In the second trim of this
    process, the other sweeper trims all rows that are left. The reports count only the rows that this process trimmed.
    """
    cluster.topics.create(P, schema="n bigint")
    for number in (1, 2, 3):
        write(cluster, P, *[number] * number)
    cluster.retention.set(P, keep_bytes=1)
    trim, read, looks = trimming.trim_log, InStreamBuffer.read, []

    def together(buffer: InStreamBuffer, topics: PersistentTopics, reading: TopicReading, to: int) -> TrimmedTo:
        with connect(cluster.client.cluster.url) as other:
            assert trim(other.client.instream.buffer, other.client.instream.topics, reading, at).to == at
        return trim(buffer, topics, reading, to)

    at = next(cluster.client.instream.buffer.read(persistent_name(P)).ledgers()).id
    monkeypatch.setattr(trimming, "trim_log", together)
    monkeypatch.setattr(InStreamBuffer, "read", lambda self, name: looks.append(name) or read(self, name))
    trimmed = cluster.retention.trim(P)
    assert (trimmed.segments, trimmed.rows, len(looks)) == (1, 5, 1)
    write(cluster, P, 4)
    at = next(cluster.client.instream.buffer.read(persistent_name(P)).ledgers()).id
    assert cluster.retention.trim(P) == Trimmed()
    assert cluster.client.instream.buffer.read(persistent_name(P)).lost_to == at


def test_a_number_out_of_range_names_the_log_of_its_topic(cluster: Cluster) -> None:
    cluster.topics.create(P, schema="n bigint")
    with pytest.raises(OffsetOutOfRange, match="the log of persistent://public/default/p, which ends at 0"):
        cluster.subscriptions.create(P, "s", start=5)


def test_topics_that_use_transactions_are_counted_once(cluster: Cluster) -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("pulsar_broker_using_txn_topics_count_total") or 0.0

    cluster.topics.create(P, schema="n bigint")
    before = counted()
    cluster.producer(P, plain=True).write(rows(1))
    assert counted() == before
    for number in (2, 3):
        write(cluster, P, number)
        assert counted() == before + 1


def test_segments_show_ongoing_transactions(cluster: Cluster) -> None:
    cluster.topics.create(P, schema="n bigint")
    write(cluster, P, 1)
    mine = cluster.client.instream
    name = mine.topics.list()[0].name
    txn = mine.coordinator.begin(topics=[name])
    (ledger,) = mine.buffer.read(name).ledgers()
    number = mine.coordinator.append(txn, {name: ledger.parts})[P]
    assert report(cluster.client, P).segments[0].undecided == ((number, txn),)
