"""A sweep reports a failure by name, and does the rest of its work. The daemon and the background thread do not end."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from metadata.client import passes
from metadata.common import metrics
from metadata.common.errors import SweepIncomplete
from metadata.log.live_log import LiveLog
from metadata.maintenance.orphans import SEEN, Orphans
from metadata.maintenance.retired import NOTES
from metadata.maintenance.sweeper import Sweeper
from metadata.maintenance.trimming import Trimmed, Trimmer
from metadata.records import paths
from metadata.records.names import TopicName
from metadata.records.records import Registration
from metadata.store.contract import decide, look
from metadata.write.background import Background
from txnsegment import Cluster
from txnsegment.cli.app import build
from txnsegment.sweeping import sweep_until

DAMAGED = [
    b"not json",
    b"",
    b"[]",
    b"7",
    b'{"a": "yesterday"}',
    b'{"a": -1}',
    b'{"a": true}',
    b'{"head": 7.5}',
    b'{"head": "part.parquet"}',
    b"[" * 100_000,
    b"\xff\xfe",
    b'{"head": "../up.avro"}',
    b'{"head": "nul\\u0000.avro"}',
    b'{"head": "' + b"long" * 2_000 + b'.avro"}',
]


def write(cluster: Cluster, topic: str, *values: int) -> None:
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"n": values}))
        txn.commit()


def root(cluster: Cluster) -> Path:
    return Path(cluster.ledgers.removeprefix("file://"))


def swept(cluster: Cluster, passes: int = 1, *, orphans_every: float = 0) -> int:
    """Let the daemon make `passes` passes. Return how many of them succeeded completely."""
    stop, done, begun = threading.Event(), [0], [0]
    sweep = cluster.client.sweep

    def counted() -> Any:
        begun[0] += 1
        if begun[0] == passes:
            stop.set()
        return sweep()

    cluster.client.sweep = counted  # type: ignore[method-assign]
    try:
        sweep_until(stop, cluster, 0.001, told=lambda _: done.__setitem__(0, done[0] + 1), orphans_every=orphans_every)
    finally:
        cluster.client.sweep = sweep  # type: ignore[method-assign]
    return done[0]


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: repr(data[:12]))
@pytest.mark.parametrize("name", [f"{SEEN}-ab.json", f"{NOTES}-ab.json"])
def test_a_damaged_orphan_note_is_a_warning_that_names_it(
    cluster: Cluster, data: bytes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topics.create("t", schema="n bigint")
    write(cluster, "t", 1)
    note = root(cluster) / name
    note.parent.mkdir(exist_ok=True)
    note.write_bytes(data)
    assert swept(cluster) == 1
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [name in record.getMessage() for record in said] == [True]
    caplog.clear()
    swept(cluster)
    again = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert bool(again) is name.startswith(NOTES), (
        "a damaged note of seen files is replaced, a damaged note of protected files stays for a while"
    )


def test_a_file_is_not_deleted_by_the_other_note_while_one_is_damaged(cluster: Cluster) -> None:
    """Two notes record since when a file is unprotected. One of them is damaged, and might give a later time than the intact one.
    So the sweep keeps the file.
    """
    cluster.topics.create("t", schema="n bigint")
    path = "manifests/0_1-ab.json"
    file = root(cluster) / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    os.utime(file, (1, 1))
    note = root(cluster) / f"{SEEN}-a.json"
    note.parent.mkdir(exist_ok=True)
    note.write_text(f'{{"{path}": 1}}')
    other = root(cluster) / f"{SEEN}-b.json"
    other.write_text("not json")
    cluster.sweep()
    assert file.exists()
    assert not other.exists()
    other.write_text(f'{{"{path}": 1}}')  # two intact notes allow the sweep to delete the file
    for one in (root(cluster) / "sweep").glob("unprotected-*.json"):
        one.write_text(f'{{"{path}": 1}}')
    cluster.sweep()
    assert not file.exists()


def test_a_part_is_not_deleted_while_a_damaged_note_may_spare_it(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n bigint")
    write(cluster, "t", 1)
    (part,) = root(cluster).rglob("*.parquet")
    orphan = part.with_name("0123.parquet")
    orphan.write_bytes(part.read_bytes())
    os.utime(orphan, (1, 1))
    note = root(cluster) / f"{NOTES}-ab.json"
    note.parent.mkdir(exist_ok=True)
    note.write_text("not json")
    cluster.sweep()
    assert orphan.exists()
    os.utime(note, (1, 1))  # the note is now older than the grace period
    cluster.sweep()
    assert not note.exists()
    cluster.sweep()
    assert not orphan.exists()
    assert part.exists()


def test_a_damaged_staging_manifest_spares_all_parts_and_blocks_no_other_delete(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topics.create("t", schema="n bigint")
    write(cluster, "t", 1)
    (part,) = root(cluster).rglob("*.parquet")
    orphan, left = part.with_name("0123.parquet"), root(cluster) / "staging" / "old.opened"
    manifest = left.with_name("token.write.manifest")
    left.parent.mkdir()
    for file in (orphan, left, manifest):
        file.write_bytes(b"not json")
    for file in (orphan, left):
        os.utime(file, (1, 1))
    assert swept(cluster) == 1
    assert orphan.exists()
    assert not left.exists()
    assert ["token.write.manifest" in r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [True]
    os.utime(manifest, (1, 1))  # the manifest is now older than the orphan age
    cluster.sweep()
    assert not orphan.exists()
    assert not manifest.exists()
    assert part.exists()


Failing = Callable[[Trimmer, TopicName, Trimmed | None], Trimmed]


def foreign(monkeypatch: pytest.MonkeyPatch, topic: str, error: BaseException) -> None:
    """Make the trim of the topic raise an error that is not one of the package's errors."""
    trim = Trimmer.trim

    def failing(self: Trimmer, name: TopicName, done: Trimmed | None = None) -> Trimmed:
        if name.name == topic:
            raise error
        return trim(self, name, done)

    monkeypatch.setattr(Trimmer, "trim", failing)


@pytest.fixture
def two(cluster: Cluster) -> Cluster:
    """Make the topics `a` and `b` with a row each."""
    for topic in ("a", "b"):
        cluster.topics.create(topic, schema="n bigint")
        write(cluster, topic, 1)
    cluster.client.coordinator.background.close()  # type: ignore[attr-defined]  # no background sweeping of the commits
    return cluster


def failures(step: str) -> float:
    return float(metrics.SWEEP_FAILURES.labels(step=step)._value.get())


def test_the_daemon_continues_past_an_unexpected_error_and_retries(
    two: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = failures("trim")
    with monkeypatch.context() as patched:
        foreign(patched, "a", RuntimeError("Planted."))
        assert swept(two, passes=3) == 0
    assert failures("trim") - before == 3
    told = [record for record in caplog.records if "public/default/a" in record.getMessage() and record.exc_info]
    assert len(told) == 3, "each error is logged with its traceback"
    assert swept(two) == 1


def test_the_daemon_does_not_list_all_files_at_each_pass_because_one_topic_fails(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass trims all topics and lists all files, and one topic fails. After such a failed pass the daemon waits for ten
    minutes before it trims and lists all files again, so the second and the third pass do neither.
    """
    listed: list[int] = []

    def counted(cluster: object) -> Orphans:
        listed.append(1)
        return Orphans(0, 0)

    monkeypatch.setattr(passes, "delete_orphans", counted)
    foreign(monkeypatch, "a", RuntimeError("Planted."))
    assert swept(two, passes=3, orphans_every=3600) == 2
    assert len(listed) == 1


def test_a_failing_sweep_command_exits_with_1_and_names_the_failure(
    two: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        foreign(patched, "a", RuntimeError("Planted."))
        done = CliRunner().invoke(build(), ["--service-url", url, "sweep", "--once"])
        assert done.exit_code == 1
        assert "public/default/a: RuntimeError: Planted." in done.stderr.replace("\n", " ")
        with pytest.raises(SweepIncomplete, match="public/default/a"):
            two.sweep()
    assert CliRunner().invoke(build(), ["--service-url", url, "sweep", "--once"]).exit_code == 0


def test_a_failing_step_of_a_sweep_blocks_no_other_step(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def failing(self: Sweeper, *args: object) -> int:
        steps.append("settle")
        raise KeyError("planted")

    two.client.finish()  # this call waits for the background work of the commits, which also sweeps
    with monkeypatch.context() as patched:
        patched.setattr(Sweeper, "settle", failing)
        patched.setattr(Sweeper, "forget", lambda *args, **kwargs: steps.append("forget"))
        with pytest.raises(SweepIncomplete, match="could not settle: KeyError: 'planted'"):
            two.client.sweep()
    assert steps == ["settle", "forget"]


def test_a_damaged_clock_record_is_named_and_blocks_no_other_step(two: Cluster) -> None:
    store = two.client.cluster.store
    record = look(store, paths.SWEEP_TIME)
    assert record is not None
    store.put(record.key, b"not json", expect=record)
    with pytest.raises(SweepIncomplete, match="could not look at the clocks: /sweep/time"):
        two.client.sweep()
    assert all(registration.state is not None for _, registration in registrations(two)), "a committed registration is not settled"


def registrations(cluster: Cluster) -> list[tuple[int, Registration]]:
    listing = decide(cluster.client.cluster.store, LiveLog().list)
    return [(entry.number, entry.registration) for entry in listing.entries]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_ends_the_daemon(two: Cluster, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign(monkeypatch, "a", error)
    with pytest.raises(type(error)):
        swept(two)


def test_the_background_thread_survives_an_unexpected_error(caplog: pytest.LogCaptureFixture) -> None:
    done = list[int]()
    background = Background(lambda: None)
    ran = threading.Event()

    def fails() -> None:
        ran.set()
        raise RuntimeError("Planted.")

    background(fails)
    assert ran.wait(30)
    thread = background._thread
    background(lambda: done.append(1))
    background.close()
    assert done == [1]
    assert background._thread is thread, "the background thread was replaced"
    assert any(record.exc_info and "Planted." in record.getMessage() for record in caplog.records)
