"""Snapshots that were damaged, moved or removed by hand. A reader replays the whole log where this is possible, and otherwise
raises an error with advice. No reader shows a row of an aborted transaction or leaves out a committed row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import pytest

from metadata.common.errors import CorruptRecord, CorruptSnapshot
from metadata.instream import snapshots, transaction_log
from metadata.instream.client import instream
from metadata.records.persistent_records import PersistentLayout, SnapshotPointer
from tests.support.bench import PERSISTENT, Bench

T, _ = PERSISTENT

ROWS = ["app.1", "app.2"]
Damage = Callable[[SnapshotPointer], SnapshotPointer]


@pytest.fixture
def bench() -> Bench:
    """Return a bench with two aborted and two committed transactions in T. A snapshot was written after the first commit."""
    bench = Bench(topics=PERSISTENT)
    hands = instream(bench.instream().cluster)
    for label in ("bad.1", "bad.2"):
        txn = hands.coordinator.begin(topics=[T])
        hands.coordinator.append(txn, {T: [bench.part(label)]})
        hands.coordinator.end(txn, commit=False)
    hands.coordinator.commit(bench.work(1, topics=[T]))
    assert hands.buffer.snapshot(T)
    hands.coordinator.commit(bench.work(2, topics=[T]))
    return bench


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store snapshots of any size in files, as large ones are stored."""
    monkeypatch.setattr(snapshots, "INLINE_BYTES", 1)


def edited(bench: Bench, how: Callable[[PersistentLayout], PersistentLayout]) -> None:
    bench.instream().topics.change(T, how)


def damaged(bench: Bench, how: Damage) -> None:
    def body(layout: PersistentLayout) -> PersistentLayout:
        assert layout.snapshot is not None
        return layout.model_copy(update={"snapshot": how(layout.snapshot)})

    edited(bench, body)


def trimmed(bench: Bench) -> None:
    """Trim the oldest entry of the topic's log, so that the topic cannot be replayed without a snapshot."""
    party = bench.instream()
    party.sweeper.trimmer.trim_to(party.buffer.read(T), 1)
    bench.older()
    assert party.sweeper.trimmer.leave(T)


def newer(found: SnapshotPointer) -> SnapshotPointer:
    """Return a snapshot that is newer than the log, as if the topic's log had been replaced by an older copy."""
    avro = base64.b64encode(snapshots.encode(T, (found.at + 1_000, 0), {})).decode()
    return found.model_copy(update={"at": found.at + 1_000, "avro": avro, "crc": None})


DAMAGES: dict[str, Damage] = {
    "cut short": lambda found: found.model_copy(update={"avro": (found.avro or "")[:-3]}),
    "no base64": lambda found: found.model_copy(update={"avro": "ü!"}),
    "no avro": lambda found: found.model_copy(update={"avro": None}),
    "no rest": lambda found: found.model_copy(update={"rest": None}),
    "a file that is not there": lambda found: found.model_copy(update={"avro": None, "path": "public/default/t/index/x.avro"}),
    "another place": lambda found: found.model_copy(update={"at": found.at - 1}),
    "newer than its log": newer,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_made_anew_from_the_whole_log(bench: Bench, damage: str) -> None:
    damaged(bench, DAMAGES[damage])
    assert bench.labels() == ROWS
    party = bench.instream()
    assert not party.sweeper.sweep().failed
    bench.instream().coordinator.commit(bench.work(3, topics=[T]))
    assert bench.labels() == [*ROWS, "app.3"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_of_a_trimmed_log_is_an_error_with_advice(bench: Bench, damage: str) -> None:
    trimmed(bench)
    damaged(bench, DAMAGES[damage])
    with pytest.raises(CorruptSnapshot, match=r"snapshot of persistent://public/default/t .*copy"):
        bench.labels()
    assert list(bench.instream().sweeper.sweep().failed) == [str(T)]


def test_a_snapshot_that_was_taken_out_of_the_record_is_made_anew(bench: Bench) -> None:
    edited(bench, lambda layout: layout.model_copy(update={"snapshot": None}))
    assert bench.labels() == ROWS
    assert bench.instream().sweeper.sweep().snapshots


def flipped(data: bytes) -> Iterator[bytes]:
    """Yield one copy of the data for each byte. The copy has one bit of this byte inverted: bit 0, 1, .. 7, then 0 again."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize("part", ["path", "rest_path"])
def test_not_one_bit_of_a_snapshot_goes_unnoticed(bench: Bench, part: str) -> None:
    trimmed(bench)
    found = bench.instream().topics.get(T).layout.snapshot
    assert found is not None
    path = getattr(found, part)
    data, at_ms = bench.disk.files[path]
    for bad in flipped(data):
        bench.disk.files[path] = bad, at_ms
        with pytest.raises(CorruptSnapshot, match="damaged"):
            bench.labels()
    bench.disk.files[path] = data, at_ms
    assert bench.labels() == ROWS


def test_not_one_bit_of_a_transaction_log_goes_unnoticed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each damaged copy of the compacted log's file raises CorruptRecord. The file has the undecided transactions and the last
    committed version of each application.
    """
    monkeypatch.setattr(transaction_log, "INLINE_BYTES", 1)
    log = bench.instream().coordinator.log
    log.compact()
    view = bench.instream().cluster.store.view()
    path = log.kept_in(view)
    assert path is not None
    data, at_ms = bench.disk.files[path]
    for bad in flipped(data):
        bench.disk.files[path] = bad, at_ms
        with pytest.raises(CorruptRecord, match=r"damaged.*Restore it from a copy"):
            bench.instream().coordinator.log.txns()
    del bench.disk.files[path]
    with pytest.raises(CorruptRecord, match=r"does not exist.*Restore it from a copy"):
        bench.instream().coordinator.log.txns()
    bench.disk.files[path] = data, at_ms
    assert bench.instream().coordinator.commit(bench.work(2, topics=[T])).skipped
