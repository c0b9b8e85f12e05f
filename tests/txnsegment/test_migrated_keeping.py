"""Tests of retention, compaction and deletion of a migrated topic, in plain programs (docs/in_stream.md, Migration)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from metadata.client.upkeep import upkeep
from metadata.common.errors import NotAllowed, OptionError, TopicExists, TopicNotFound
from txnsegment import Cluster, connect
from txnsegment.cli.app import build

OLD, NEW = "persistent://public/default/old", "topic://public/default/new"


@pytest.fixture
def migrated(tmp_path: Path) -> Iterator[Cluster]:
    with connect(f"file://{tmp_path}") as cluster:
        cluster.topics.create(OLD, schema="n bigint")
        for n in range(3):
            write(cluster, OLD, n)
        cluster.topics.migrate(OLD, NEW)
        yield cluster


def write(cluster: Cluster, topic: str, n: int) -> None:
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"n": pa.array([n], pa.int64())}))
        txn.commit()


def numbers(cluster: Cluster, name: str) -> list[int]:
    start = f"{name}-{cluster.topics.describe(NEW).epoch}"
    with cluster.consumer(name, start, start="earliest") as consumer:
        return [message.value["n"] for message in consumer.messages(timeout=0)]


def test_retention_is_the_same_under_either_name(migrated: Cluster) -> None:
    migrated.retention.set(OLD, keep_bytes=1, keep=timedelta(days=1))
    assert migrated.retention.get(OLD) == migrated.retention.get(NEW)
    assert migrated.retention.get(NEW).retention_bytes == 1
    assert migrated.retention.trim(OLD).rows == 3
    assert numbers(migrated, OLD) == numbers(migrated, NEW) == []
    assert migrated.retention.clear(OLD).retention_bytes is None


def test_compaction_leaves_migrated_rows_and_reports_it(migrated: Cluster) -> None:
    for n in range(3, 7):
        write(migrated, NEW, n)
    migrated.client.finish()
    migrated.sweep()
    done = migrated.compact(NEW)
    assert (done.files_before, done.files_after, done.left_out) == (4, 1, (OLD,))
    with pytest.raises(OptionError, match="one log"):
        migrated.compact(OLD)
    migrated.retention.set(NEW, compact_files=2)
    assert upkeep(migrated.client).compacted.left_out == (OLD,)
    told = CliRunner().invoke(build(), ["--service-url", migrated.client.cluster.url, "compact", NEW])
    assert told.exit_code == 0, told.output
    assert f"{OLD} is a migrated log and is not compacted" in told.output
    assert numbers(migrated, NEW) == [0, 1, 2, 3, 4, 5, 6]


def test_deleting_the_successor_deletes_the_old_name(migrated: Cluster) -> None:
    with pytest.raises(NotAllowed, match=NEW):
        migrated.topics.delete(OLD)
    migrated.topics.delete(NEW)
    assert migrated.topics.list() == []
    for call in (migrated.topics.describe, migrated.topics.delete, migrated.retention.get, migrated.producer):
        with pytest.raises(TopicNotFound, match=f"migrated to {NEW}, which was deleted"):
            call(OLD)
    with pytest.raises(TopicExists, match=f"Write to {NEW}, or create that topic again"):
        migrated.topics.create(OLD)
    migrated.topics.create(NEW, schema="n bigint")
    assert [topic.name for topic in migrated.topics.list()] == [NEW, OLD]
    write(migrated, OLD, 7)
    assert numbers(migrated, OLD) == numbers(migrated, NEW) == [7]
