"""Bad input, bad files, bad disks and bad servers. Each raises a clear error of its own, loses no row, and leaves no transaction
OPEN.

The tests call the entry points as Spark's driver and tasks do, but without Spark. This is fast and raises the same errors. The last
test shows that the errors reach a user through Spark.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructType

from conformance.proxy import TcpProxy
from conformance.servers import ZooKeeperServer, free_ports
from ledgers.storage import LedgerStorage
from metadata.client.client import Client, client, shared_client
from metadata.client.passes import delete_orphans
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.common.clock import SystemClock
from metadata.common.errors import (
    ClusterFormatError,
    ConfigurationError,
    CorruptPart,
    CorruptSnapshot,
    OffsetOutOfRange,
    OptionError,
    SchemaError,
    SegmentSealed,
    StorageError,
    StoreError,
    TopicNotFound,
    TxnConflict,
    TxnSegmentError,
    Unavailable,
    VersionConflict,
)
from metadata.records import paths
from metadata.records.cluster_records import ClusterRecord, Settings
from metadata.records.names import topic_name
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root
from pyspark_txnsegment import DefaultSource
from txnsegment import connect
from txnsegment.schemas import from_arrow

if TYPE_CHECKING:
    from tests.spark.conftest import Deployment

KEPT = [{"n": i, "s": f"row {i}"} for i in range(100)]


class Ahead(SystemClock):
    """A clock that is ten minutes ahead, past every deadline."""

    def now_ms(self) -> int:
        return super().now_ms() + 600_000


class Site:
    """A cluster with a topic `t`, which has a hundred rows in two segments. Its methods call the data source as Spark does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cluster"
        self.url = f"file://{self.folder}"
        self.write(pa.Table.from_pylist(KEPT), segments="2", keyColumn="n")

    def source(self, options: dict[str, str]) -> DefaultSource:
        return DefaultSource({"serviceUrl": self.url, **options})

    def staged(self, table: pa.Table, **options: str) -> tuple[Any, list[Any]]:
        """Stage the rows. Return the writer, and the message of its only task."""
        writer = self.source({"topic": "t", **options}).writer(from_arrow(table.schema), overwrite=False)
        return writer, [writer.write(iter(table.to_batches()))]

    def write(self, table: pa.Table, **options: str) -> None:
        writer, messages = self.staged(table, **options)
        writer.commit(messages)

    def read(self, schema: StructType | None = None, **options: str) -> list[dict[str, Any]]:
        given = options if {"topic", "topics", "topicsPattern", "path"} & options.keys() else {"topic": "t", **options}
        source = self.source(given)
        reader = source.reader(source.schema() if schema is None else schema)
        return [row for p in reader.partitions() for batch in reader.read(p) for row in batch.to_pylist()]

    def stream(self, **options: str) -> Any:
        source = self.source({"topic": "t", **options})
        return source.streamReader(source.schema())

    def sink(self, **options: str) -> Any:
        return self.source({"topic": "t", **options}).writer(StructType().add("n", LongType()), overwrite=False)

    @contextmanager
    def client(self) -> Iterator[Client]:
        with connect(self.url) as cluster:
            yield cluster.client

    def parts(self) -> list[Path]:
        return sorted(self.folder.rglob("*.parquet"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def nothing_open_after_a_sweep(url: str) -> None:
    ahead = client(open_cluster(url, clock=Ahead()))
    ahead.sweeper.sweep()
    assert ahead.cluster.store.view().scan_index(paths.TXN_BY_DEADLINE, "", "~") == []
    ahead.close()


def rows_of(table: dict[str, Any]) -> pa.Table:
    return pa.table(table)


def registered(site: Site) -> int:
    with site.client() as one:
        return len(one.cluster.store.view().keys(paths.LOG.range()))


# --- options, names, URLs, schemas, offsets, timestamps -----------------------------------------------------------


@dataclass(frozen=True)
class Case:
    what: str
    run: Callable[[Site], object]
    error: type[TxnSegmentError]
    words: tuple[str, ...]


def reading(what: str, error: type[TxnSegmentError], *words: str, **options: str) -> Case:
    return Case(f"read: {what}", lambda site: site.read(**options), error, words)


def streaming(what: str, error: type[TxnSegmentError], *words: str, **options: str) -> Case:
    return Case(f"stream: {what}", lambda site: site.stream(**options).initialOffset(), error, words)


def writing(what: str, error: type[TxnSegmentError], *words: str, **options: str) -> Case:
    return Case(f"write: {what}", lambda site: site.sink(**options), error, words)


def rows(what: str, error: type[TxnSegmentError], *words: str, **columns: Any) -> Case:
    return Case(f"rows: {what}", lambda site: site.write(rows_of(columns)), error, words)


CASES = [
    # options
    reading("unknown option", OptionError, "startingOffset", "Did you mean startingOffsets?", startingOffset="latest"),
    reading("an option of Kafka's", OptionError, "subscribe", "topics", subscribe="t"),
    reading("an option of the sink", OptionError, "keyColumn", "sink", keyColumn="n"),
    reading("a credential", OptionError, "password", "environment", password="hunter2"),
    reading("topic and topics", OptionError, "2 ways", "topics", topic="t", topics="a,b"),
    reading("path and topic that differ", OptionError, "differ", path="a", topic="b"),
    reading("a word for a boolean", OptionError, "includeMetadata", "true or false", includeMetadata="yes"),
    reading("an isolation level", OptionError, "isolationLevel", "read_committed", isolationLevel="dirty"),
    reading("limits in a batch", OptionError, "maxRowsPerTrigger", "batch", maxRowsPerTrigger="5"),
    reading("partitions", OptionError, "minPartitions", "1", minPartitions="0"),
    reading("a size", OptionError, "maxPartitionBytes", "128m", maxPartitionBytes="12q"),
    streaming("an end", OptionError, "endingOffsets", "stream", endingOffsets="latest"),
    streaming("uncommitted rows", OptionError, "isolationLevel", "batch", isolationLevel="read_uncommitted"),
    streaming("a limit of no rows", OptionError, "maxRowsPerTrigger", "1", maxRowsPerTrigger="0"),
    writing("unknown option", OptionError, "segment", "Did you mean segments?", segment="4"),
    writing("segments", OptionError, "segments", "1", segments="0"),
    writing("too many segments", OptionError, "segments", "1024", segments="1025"),
    writing("a codec", OptionError, "compression", "Did you mean", compression="gzip"),
    writing("a version without an application", OptionError, "txnVersion", "txnAppId", txnVersion="3"),
    writing("an application without a version", OptionError, "txnAppId", "txnVersion", txnAppId="app"),
    writing("a timeout in seconds", OptionError, "txnTimeoutMs", "milliseconds", txnTimeoutMs="30"),
    writing("a timeout with a unit", OptionError, "txnTimeoutMs", "milliseconds", txnTimeoutMs="30s"),
    writing("entries too large", OptionError, "entryBytes", "1g", entryBytes="2g"),
    Case("write: overwrite", lambda s: s.source({"topic": "t"}).writer(StructType().add("n", LongType()), overwrite=True),
         OptionError, ("Overwrite", "append")),
    # names
    reading("a topic's name", OptionError, "a/b", "topic://tenant/namespace/name", topic="a/b"),
    reading("a segment's name", OptionError, "segment", "0000-ffff-0", topic="segment://public/default/t/0-9"),
    reading("a segment that is not there", OptionError, "There is no segment", topic="segment://public/default/t/0000-ffff-9"),
    reading("a topic that is not there", TopicNotFound, "topic://public/default/nope", "Create it", topic="nope"),
    reading("a pattern", OptionError, "topicsPattern", "regular expression", topicsPattern="[a"),
    reading("a pattern that matches nothing", SchemaError, "no topic matches", topicsPattern="topic://x/.*"),
    reading("a topic and its segment", OptionError, "twice", topics="t,segment://public/default/t/0000-7fff-0"),
    writing("to a segment", OptionError, "segment", "routes", topic="segment://public/default/t/0000-7fff-0"),
    writing("to a topic that may not be made", TopicNotFound, "nope", topic="nope", autoCreate="false"),
    writing("a second key", OptionError, "'s'", "is not a column", keyColumn="s"),
    # URLs
    reading("no scheme", OptionError, "file:///data", serviceUrl="/data"),
    reading("a relative path", OptionError, "not absolute", serviceUrl="file://data"),
    reading("the root", OptionError, "root", serviceUrl="file:///"),
    reading("another scheme", ConfigurationError, "redis", "zk://", serviceUrl="redis://localhost/0"),
    reading("a port", OptionError, "99999", serviceUrl="zk://localhost:99999/x"),
    reading("credentials", OptionError, "environment", serviceUrl="zk://user:hunter2@localhost:2181/x"),
    Case("read: no URL", lambda s: DefaultSource({"topic": "t"}).schema(), OptionError, ("TXNSEGMENT_SERVICE_URL", "serviceUrl")),
    # offsets and timestamps
    reading("an offset", OptionError, "startingOffsets", '{"log": 41}', startingOffsets="yesterday"),
    reading("a negative offset", OptionError, "startingOffsets", "0", startingOffsets='{"log":-1}'),
    reading("more than an offset", OptionError, "startingOffsets", "partition", startingOffsets='{"log":1,"partition":2}'),
    reading("an end before the start", OffsetOutOfRange, "5", "3", startingOffsets='{"log":5}', endingOffsets='{"log":3}'),
    reading("an end beyond the log", OffsetOutOfRange, "4711", "log ends at 1", endingOffsets='{"log":4711}'),
    reading("a start beyond the log", OffsetOutOfRange, "4711", startingOffsets='{"log":4711}'),
    streaming("a start beyond the log", OffsetOutOfRange, "4711", startingOffsets='{"log":4711}'),
    reading("two starts", OptionError, "both", startingOffsets="latest", startingTimestamp="0"),
    reading("seconds for milliseconds", OptionError, "seconds", "1735689600000", startingTimestamp="1735689600"),
    reading("a time without a zone", OptionError, "zone", startingTimestamp="2026-01-01T00:00:00"),
    reading("no timestamp", OptionError, "not a timestamp", endingTimestamp="noon"),
    reading("an end time before the start", OffsetOutOfRange, "2000", "1000", startingTimestamp="2000", endingTimestamp="1000"),
    # schemas
    reading("a column", SchemaError, "no column m", columns="m"),
    reading("a column twice", OptionError, "twice", columns="n,N"),
    rows("a type that does not fit", SchemaError, "n", "string", "bigint", n=["x"]),
    rows("a name that differs by case", SchemaError, "N", "case", n=[1], N=[2]),
    rows("a reserved name", SchemaError, "__messageId", n=[1], __messageId=["x"]),
    rows("nothing but nulls", SchemaError, "void", "Cast", n=[1], nothing=pa.nulls(1)),
    rows("without the key", OptionError, "'n'", "not a column", s=["x"]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_each_bad_input_is_a_clear_error_that_loses_no_row(site: Site, case: Case) -> None:
    files = site.parts()
    with pytest.raises(case.error) as caught:
        case.run(site)
    for word in case.words:
        assert word in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert site.parts() == files
    assert registered(site) == 1
    assert sorted(r["n"] for r in site.read()) == list(range(100))
    nothing_open_after_a_sweep(site.url)


def test_the_table_of_bad_input_covers_every_kind() -> None:
    assert len(CASES) >= 40


# --- files --------------------------------------------------------------------------------------------------------


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))


def in_a_page(path: Path) -> int:
    """Return the offset, in the file, of a byte in the last page of the first column."""
    column = pq.read_metadata(path).row_group(0).column(0)
    first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    return int(first + column.total_compressed_size - 3)


DAMAGE: dict[str, tuple[Callable[[list[Path]], object], str]] = {
    "missing": (lambda parts: parts[0].unlink(), "missing"),
    "short": (lambda parts: os.truncate(parts[0], parts[0].stat().st_size - 10), "does not end as a Parquet file"),
    "empty": (lambda parts: os.truncate(parts[0], 0), "too few"),
    "longer": (lambda parts: parts[0].write_bytes(parts[0].read_bytes() + b"PAR1"), "claims"),
    "a page": (lambda parts: flipped(parts[0], in_a_page(parts[0])), "does not match its registration"),
    "its footer": (lambda parts: flipped(parts[0], -20), "CRC"),
    "another file": (lambda parts: shutil.copy(parts[1], parts[0]), "instead of"),
    "a folder": (lambda parts: (parts[0].unlink(), parts[0].mkdir()), "directory"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_part_is_an_error_that_names_the_part(site: Site, damage: str) -> None:
    """The error names the part, its segment and the positions of the lost rows. The read never returns fewer rows instead."""
    run, said = DAMAGE[damage]
    parts = site.parts()
    run(parts)
    with pytest.raises((CorruptPart, StorageError)) as caught:
        site.read()
    assert parts[0].name in str(caught.value)
    assert said in str(caught.value)
    if damage != "a folder":
        assert "segment://public/default/t/" in str(caught.value)
        assert "ledger 1, entries 0 to 0" in str(caught.value)
    nothing_open_after_a_sweep(site.url)


def test_a_damaged_index_snapshot(site: Site) -> None:
    with site.client() as one:
        one.sweeper.sweep()
    heads = list(site.folder.rglob("*.avro"))
    assert heads
    kept = {head: head.read_bytes() for head in heads}
    for damage in (lambda head: flipped(head, 60), lambda head: head.unlink()):
        for head in heads:
            damage(head)
        with site.client() as one, pytest.raises(CorruptSnapshot, match=r"\.avro"):
            one.buffer.read(_all())
        for head, data in kept.items():
            head.write_bytes(data)
    assert len(site.read()) == 100


def _all() -> Any:
    from metadata.read.reading import LogSelection

    return LogSelection(pattern=".*")


def test_the_ledger_folder_is_gone(site: Site) -> None:
    ledgers, away = site.folder / "ledgers", site.folder / "away"
    ledgers.rename(away)
    # The first missing file is the head of an index snapshot if the commit's share of the sweeping has folded. Otherwise it is a
    # part.
    with pytest.raises((CorruptPart, CorruptSnapshot, StorageError), match=r"missing|does not exist"):
        site.read()
    with pytest.raises(StorageError, match=r"ledger folder .* does not exist"):
        site.write(rows_of({"n": [1]}))
    assert not ledgers.exists()
    with pytest.raises(StorageError, match="does not exist"), site.client() as one:
        delete_orphans(one.cluster)
    away.rename(ledgers)
    site.write(rows_of({"n": [1]}))
    assert len(site.read()) == 101
    nothing_open_after_a_sweep(site.url)


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text("not a folder")
    with pytest.raises(ConfigurationError, match="cluster"):
        connect(f"file://{tmp_path}/cluster")
    with pytest.raises(ConfigurationError, match="cluster"):
        connect(f"file://{tmp_path}/cluster/below")
    site = Site(tmp_path / "other")
    shared_client(site.url).finish()  # the work after the first write may write into the folder
    folder = site.parts()[0].parent
    away = folder.rename(folder.with_name("away"))
    folder.write_text("in the way")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        site.write(rows_of({"n": list(range(100))}))
    folder.unlink()
    away.rename(folder)
    unchanged(site)


# --- disks --------------------------------------------------------------------------------------------------------


class Disk:
    """A small disk that can be made full. It is a mounted disk if this process may mount one. Otherwise the size of the files of
    this process is limited.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
        self.mounted = bool(shutil.which("mount")) and subprocess.run(mount, capture_output=True, check=False).returncode == 0

    @contextmanager
    def full(self) -> Iterator[str]:
        """Fill the disk. Yield the text of the error that a write then raises."""
        if self.mounted:
            with (self.folder / "ballast").open("wb", buffering=0) as out:
                _fill(out)
            yield "no space left"
            (self.folder / "ballast").unlink()
            return
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
        try:
            yield "larger than this process may write"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    @contextmanager
    def read_only(self, below: str) -> Iterator[str]:
        if self.mounted:
            self._remount("ro")
            yield "read-only"
            self._remount("rw")
            return
        folder = self.folder / below
        moved = folder.with_name("moved")
        folder.rename(moved)
        folder.write_text("a file in place of the folder: root may write where nobody may")
        yield "a part of the path is a file"
        folder.unlink()
        moved.rename(folder)

    def _remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


def _fill(out: io.FileIO) -> None:
    while True:
        try:
            out.write(b"x" * 4096)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk")
    yield made
    made.close()


def on_disk(disk: Disk, tmp_path: Path) -> Site:
    """Return a site with its ledgers on the small disk and its records beside it. No file of the disk is left open, because a disk
    in use cannot be made read-only.
    """
    connect(f"file://{tmp_path}/cluster", ledgers=f"file://{disk.folder}/ledgers").close()
    site = Site(tmp_path)
    shared_client(site.url).finish()
    return site


def test_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    site = on_disk(disk, tmp_path)
    with disk.full() as words, pytest.raises(StorageError, match=words):
        site.write(rows_of({"n": list(range(100_000))}))
    assert len(site.read()) == 100
    assert [p.name for p in disk.folder.rglob("*.tmp")] == []
    site.write(rows_of({"n": [1]}))
    assert len(site.read()) == 101
    nothing_open_after_a_sweep(site.url)


def test_a_read_only_disk(disk: Disk, tmp_path: Path) -> None:
    site = on_disk(disk, tmp_path)
    with disk.read_only("ledgers/public/default") as words, pytest.raises(StorageError, match=words):
        site.write(rows_of({"n": [1]}))
    site.write(rows_of({"n": [1]}))
    assert len(site.read()) == 101
    nothing_open_after_a_sweep(site.url)


def test_a_full_disk_under_the_records(disk: Disk) -> None:
    """Rows are staged. Then the disk is filled, and the test makes other writes until one raises an error. When the disk has room
    again, the staged rows are committed, and the commit is repeated. The rows are there once.
    """
    site = Site(disk.folder)
    table = rows_of({"n": list(range(1000))})
    writer, messages = site.staged(table, txnAppId="app", txnVersion="1")

    def write_on() -> None:
        for version in range(2, 10_000):  # the loop ends with an error when SQLite's free pages are used up
            site.write(rows_of({"n": [version]}), txnAppId="filler", txnVersion=str(version))

    with disk.full(), pytest.raises((StoreError, StorageError)) as caught:
        write_on()
    assert str(caught.value)
    written = len(site.read()) - 100
    writer.commit(messages)
    writer.commit(messages)
    assert len(site.read()) == 100 + written + 1000
    nothing_open_after_a_sweep(site.url)


# --- the store's own files ----------------------------------------------------------------------------------------


def test_a_foreign_sqlite_file(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "metadata.db")
    database.execute("create table customers (name text)")
    database.execute("insert into customers values ('Ada')")
    database.commit()
    database.close()
    with pytest.raises(ClusterFormatError, match=r"metadata\.db"):
        connect(f"file://{tmp_path}")
    database = sqlite3.connect(tmp_path / "metadata.db")
    assert database.execute("select * from customers").fetchall() == [("Ada",)]
    assert database.execute("select name from sqlite_master").fetchall() == [("customers",)]
    database.close()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").write_bytes(b"something else\n" * 100)
    with pytest.raises(ClusterFormatError, match=r"metadata\.db"):
        connect(f"file://{tmp_path}")
    assert (tmp_path / "metadata.db").read_bytes() == b"something else\n" * 100


def test_a_newer_format(site: Site) -> None:
    with site.client() as one:
        record = one.cluster.store.view().get(paths.CLUSTER)
        assert record is not None
        newer = ClusterRecord.of(record).model_copy(update={"format_version": 99})
        one.cluster.store.put(paths.CLUSTER, newer.to_bytes(), expect=record)
    with pytest.raises(ClusterFormatError, match=r"99.*Upgrade"):
        connect(site.url)


def test_other_ledgers_than_the_clusters(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="keeps its ledgers in"):
        connect(site.url, ledgers=f"file://{tmp_path}/elsewhere")
    for uri in ("ftp://host/x", "relative/path", "s3://user:hunter2@bucket/x"):
        with pytest.raises(StorageError) as caught:
            LedgerStorage(uri)
        assert "hunter2" not in str(caught.value)


# --- impossible commits -------------------------------------------------------------------------------------------


def unchanged(site: Site, count: int = 100) -> None:
    assert len(site.read()) == count
    nothing_open_after_a_sweep(site.url)


def test_a_task_that_did_not_report(site: Site) -> None:
    writer, messages = site.staged(rows_of({"n": [1]}))
    with pytest.raises(TxnConflict, match="did not report"):
        writer.commit([*messages, None])
    writer.abort([*messages, None])
    unchanged(site)


def test_a_version_that_is_too_low(site: Site) -> None:
    site.write(rows_of({"n": [1]}), txnAppId="app", txnVersion="5")
    with pytest.raises(VersionConflict, match=r"4.*5"):
        site.write(rows_of({"n": [2]}), txnAppId="app", txnVersion="4")
    unchanged(site, 101)


def test_a_topic_deleted_under_a_write(site: Site) -> None:
    writer, messages = site.staged(rows_of({"n": [1]}))
    with site.client() as one:
        from metadata.records.names import topic_name

        one.topics.delete(topic_name("t"))
    with pytest.raises((SegmentSealed, TopicNotFound), match=r"topic://public/default/t|segment://public/default/t"):
        writer.commit(messages)
    writer.abort(messages)
    nothing_open_after_a_sweep(site.url)


def test_two_writes_that_grow_the_topic_apart(site: Site) -> None:
    first, told_first = site.staged(rows_of({"n": [1], "more": ["text"]}), mergeSchema="true")
    second, told_second = site.staged(rows_of({"n": [2], "more": [2.5]}), mergeSchema="true")
    first.commit(told_first)
    with pytest.raises(SchemaError, match=r"more is double in this write, but string in the topic"):
        second.commit(told_second)
    second.abort(told_second)
    unchanged(site, 101)


def test_two_first_writes_of_different_columns(tmp_path: Path) -> None:
    """Both writes were planned while the topic had no columns. The second would add a column, and was not asked to."""
    site = Site(tmp_path)
    with site.client() as one:
        one.topics.create(topic_name("new"))
    first, told_first = site.staged(rows_of({"a": [1]}), topic="new")
    second, told_second = site.staged(rows_of({"a": [1], "b": [2]}), topic="new")
    first.commit(told_first)
    with pytest.raises(SchemaError, match=r"the column b \(bigint\) is new"):
        second.commit(told_second)
    second.abort(told_second)
    assert site.read(topic="new") == [{"a": 1}]
    unchanged(site)


def test_two_first_writes_with_different_keys(tmp_path: Path) -> None:
    site = Site(tmp_path)
    table = rows_of({"a": [1, 2], "b": [3, 4]})
    site.write(table.slice(0, 0), topic="new")
    first, told_first = site.staged(table, topic="new", keyColumn="a")
    second, told_second = site.staged(table, topic="new", keyColumn="b")
    first.commit(told_first)
    with pytest.raises(OptionError, match=r"routed by 'b'.*set 'a' as the key"):
        second.commit(told_second)
    assert len(site.read(topic="new")) == 2
    unchanged(site)


@pytest.mark.parametrize("planned", ["before", "after"])
def test_a_key_set_between_staging_and_commit_refuses_the_write(tmp_path: Path, planned: str) -> None:
    """The topic gets its key after the rows were staged without one. The commit is refused, even if the committing process planned
    after the change and knows the key.
    """
    site = Site(tmp_path)
    table = rows_of({"a": [1, 2]})
    site.write(table.slice(0, 0), topic="new", segments="4")
    writer, told = site.staged(table, topic="new")
    if planned == "before":
        site.write(table, topic="new", keyColumn="a")
    else:
        with site.client() as one:
            one.topics.evolve(topic_name("new"), StructType().add("a", LongType()), key="a")
        writer = site.source({"topic": "new"}).writer(from_arrow(table.schema), overwrite=False)
    with pytest.raises(TxnConflict, match=r"routed without a key, but the topic now routes by 'a'"):
        writer.commit(told)
    assert len(site.read(topic="new")) == (2 if planned == "before" else 0)
    unchanged(site)
    site.write(table, topic="new")


def test_a_zombie_after_its_successor_changes_nothing(site: Site) -> None:
    zombie, old = site.staged(rows_of({"n": [1]}), txnAppId="app", txnVersion="1")
    successor, new = site.staged(rows_of({"n": [1]}), txnAppId="app", txnVersion="1")
    successor.commit(new)
    zombie.commit(old)
    zombie.abort(old)
    unchanged(site, 101)


# --- ZooKeeper ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


def test_zookeeper_away_at_the_start() -> None:
    (port,) = free_ports(1)
    url = f"zk://127.0.0.1:{port}/x"
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
        ZooKeeperStore(*hosts_and_root(url), connect_seconds=1)


def test_no_cluster_on_zookeeper(zookeeper: ZooKeeperServer) -> None:
    with pytest.raises(ConfigurationError, match=r"txnsegment init .* --ledgers"):
        DefaultSource({"serviceUrl": f"zk://{zookeeper.hosts}/nothing", "topic": "t"}).schema()


def test_zookeeper_lost_in_a_commit(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """The reply to the commit's first write is lost, and the connection stays broken. The error says that the commit failed. No
    transaction stays OPEN past its deadline. A repetition of the version commits once.
    """
    url = f"zk://{zookeeper.hosts}/lost"
    settings = Settings(deadline_allowance_ms=200)
    open_cluster(url, ledgers=f"file://{tmp_path}/ledgers", settings=settings).close()
    with TcpProxy("127.0.0.1", zookeeper.port) as proxy:
        store = ZooKeeperStore(*hosts_and_root(f"zk://{proxy.hosts}/lost"))
        one = client(Cluster(url, store, LedgerStorage(f"file://{tmp_path}/ledgers"), settings))
        site = _ZooKeeperSite(one)
        site.append(1, {"n": [1]}).commit()
        second = site.append(2, {"n": [2]})
        failed: list[BaseException] = []

        def commit() -> None:
            try:
                second.commit()
            except TxnSegmentError as error:
                failed.append(error)

        thread = threading.Thread(target=commit)
        with proxy.drop_replies():
            store._session._connect_seconds = 0.1  # the client gives up soon, because no server is reachable in this block
            thread.start()
            assert proxy.wait_dropped()
            thread.join(30)
        assert not thread.is_alive()
        # The write whose reply was lost opens the header. It comes before the deciding CAS, so the commit certainly failed.
        assert [type(e) for e in failed] == [Unavailable]
        assert "ZooKeeper" in str(failed[0]) or zookeeper.hosts in str(failed[0]) or proxy.hosts in str(failed[0])
        one.close()
    after = client(open_cluster(url))
    end = time.monotonic() + 20
    while after.cluster.store.view().scan_index(paths.TXN_BY_DEADLINE, "", "~"):
        assert time.monotonic() < end, "the transaction is still OPEN"
        after.sweeper.sweep()
        after.cluster.clock.sleep(0.2)
    again = _ZooKeeperSite(after)
    again.append(2, {"n": [2]}).commit()
    again.append(2, {"n": [2]}).commit()
    reading = after.buffer.read(_all())
    assert sum(found.rows for s in reading.segments for found in s.ledgers(0, reading.cut)) == 2
    after.close()


class _ZooKeeperSite:
    def __init__(self, one: Client) -> None:
        from txnsegment.cluster import Cluster as Face

        self._face = Face(one)
        if not self._face.topics.list():
            self._face.topics.create("t")

    def append(self, version: int, columns: dict[str, Any]) -> Any:
        txn = self._face.begin(app="app", version=version, timeout=1)
        txn.append("t", rows_of(columns))
        return txn


# --- through Spark ------------------------------------------------------------------------------------------------


def test_the_errors_reach_a_user_of_spark(here: Deployment, disk: Disk) -> None:
    """A wrong option raises an error at load. A damaged file raises an error in a task of the source and in Spark's own reader. A
    full disk raises an error in a task.
    """
    spark = here.spark
    with pytest.raises(PySparkException, match=r"OptionError.*Did you mean startingOffsets\?"):
        here.read(startingOffset="latest")
    here.write(spark.range(1000).coalesce(1))
    (part,) = [here.folder / f for f in here.files()]
    data = part.read_bytes()
    planned, native = here.read(), here.scan()
    flipped(part, in_a_page(part))
    with pytest.raises(PySparkException, match=r"(?s)CorruptPart.*segment://public/default/t/0000-ffff-0, ledger 1"):
        planned.collect()
    with pytest.raises(Py4JJavaError, match=f"FAILED_READ_FILE.*{part.name}"):
        native.collect()
    part.unlink()
    with pytest.raises(PySparkException, match=r"(?s)CorruptPart.*the file is missing"):
        planned.collect()
    with pytest.raises((PySparkException, Py4JJavaError), match=r"FAILED_READ_FILE.*FILE_NOT_EXIST|does not exist"):
        native.collect()
    with pytest.raises(CorruptPart, match="the file is missing"):
        here.scan()
    part.write_bytes(data)
    assert here.read().count() == here.scan().count() == 1000
    if disk.mounted:
        url = f"file://{here.folder}/small"
        connect(url, ledgers=f"file://{disk.folder}/ledgers").close()
        with disk.full(), pytest.raises(PySparkException, match=r"(?s)StorageError.*no space left"):
            spark.range(1000).write.format("txnsegment").option("serviceUrl", url).mode("append").save("t")
        nothing_open_after_a_sweep(url)
