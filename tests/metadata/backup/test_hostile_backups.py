"""Damaged or forged backup files. A restore of such a file uses bounded memory, restores no record, and raises a TxnSegmentError.
The error names the line and the key of a forged record.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ledgers.plain_text import shown
from metadata.backup import backup_file
from metadata.backup.backup_file import SMALL
from metadata.common.errors import BackupDamaged, CorruptRecord, TxnSegmentError
from metadata.records.cluster_records import ClusterRecord, Settings
from txnsegment import connect, restore


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a cluster and its backup. The cluster has topics of both models, subscriptions and a split."""
    place = tmp_path_factory.mktemp("origin")
    with connect(f"file://{place}/first") as cluster:
        for topic in ("t", "persistent://public/default/p"):
            cluster.topics.create(topic, schema="n bigint")
            cluster.subscriptions.create(topic, "s")
            for version in range(2):
                with cluster.begin(app=f"writer of {topic}", version=version) as txn:
                    txn.append(topic, pa.table({"n": [1, 2]}))
                    txn.commit()
                cluster.sweep()
        cluster.topics.split("t", 0)
        with cluster.begin() as txn:
            txn.append("t", pa.table({"n": [3]}))
            txn.commit()
        cluster.retention.set("namespace://public/default", keep_bytes=10**9)
        cluster.backup(place / "backup.gz")
    return place


@pytest.fixture
def lines(origin: Path) -> list[bytes]:
    return gzip.decompress((origin / "backup.gz").read_bytes()).splitlines()[:-1]


def packed(lines: Sequence[bytes]) -> bytes:
    """Return a backup file of the lines, with a valid checksum."""
    body = b"".join(line + b"\n" for line in lines)
    return gzip.compress(body + json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n")


def heading(lines: Sequence[bytes], **changes: Any) -> list[bytes]:
    """Return the lines with changed fields in the heading."""
    return [json.dumps({**json.loads(lines[0]), **changes}).encode(), *lines[1:]]


def refused(tmp_path: Path, data: bytes) -> str:
    """Check that a restore refuses the file and makes no store. Return the error's text."""
    file = tmp_path / "forged.gz"
    file.write_bytes(data)
    with pytest.raises(BackupDamaged) as damaged:
        restore(file, f"file://{tmp_path}/again")
    assert not (tmp_path / "again").exists()
    assert len(str(damaged.value)) < 2_000
    return str(damaged.value)


# --- bombs ------------------------------------------------------------------------------------------------------------

BOMBS = {
    "one line": lambda first: b"0" * (3 * SMALL),
    "empty lines": lambda first: first + b"\n" * (3 * SMALL),
    "one record": lambda first: first + b'{"key":"/log/log-00000000000000000001","partition":"log","record":' + b"1" * (3 * SMALL),
    "one record many times": lambda first: first + b'{"key":"/topics/a/b/c","partition":"","record":{}}\n' * (SMALL // 4),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_in_bounded_memory(tmp_path: Path, lines: list[bytes], kind: str) -> None:
    data = gzip.compress(BOMBS[kind](heading(lines, records=10**9)[0] + b"\n"), compresslevel=1)
    assert len(data) < SMALL // 4
    tracemalloc.start()
    try:
        said = refused(tmp_path, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * SMALL, said


def test_a_backup_that_shrinks_well_is_not_taken_for_a_bomb(tmp_path: Path, origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = backup_file.read(origin / "backup.gz")
    monkeypatch.setattr(backup_file, "SMALL", 1)
    monkeypatch.setattr(backup_file, "RATIO", 2)
    backup_file.write(tmp_path / "again.gz", found)
    assert backup_file.read(tmp_path / "again.gz") == found


# --- forged headings --------------------------------------------------------------------------------------------------

HEADINGS: list[tuple[dict[str, Any], str]] = [
    ({"number": -1}, "number"),
    ({"number": 10**18}, "number"),
    ({"number": "7"}, "number"),
    ({"nextTxn": -(10**15)}, "nextTxn"),
    ({"inStream": 10**18}, "inStream"),
    ({"takenMs": 10**17}, "takenMs"),
    ({"records": -5}, "records"),
    ({"records": 10**9}, "records, not 1000000000"),
    ({"records": 1}, "its last line says"),
    ({"restored": [{"after": 5, "before": 5, "restoredAtMs": 0}]}, "ascending"),
    ({"restored": [{"after": 0, "before": 10**10, "restoredAtMs": 0}] * 2}, "ascending"),
    ({"restored": [{"after": 0, "before": 10**18, "restoredAtMs": 0}]}, "ascending"),
    ({"settings": None}, "settings"),
    ({"txnsegmentBackup": [1] * 1000}, "not a backup that this version of txnsegment can read"),
    ({"txnsegmentBackup": 99}, "not a backup that this version of txnsegment can read"),
]


@pytest.mark.parametrize(("changes", "said"), HEADINGS, ids=lambda value: str(value)[:40])
def test_a_forged_heading_is_refused(tmp_path: Path, lines: list[bytes], changes: dict[str, Any], said: str) -> None:
    assert said in refused(tmp_path, packed(heading(lines, **changes)))


SETTINGS: list[tuple[dict[str, Any], str]] = [
    *(({name: -1}, name) for name in Settings().model_dump(by_alias=True)),
    *(({name: 2**70}, "64 bits") for name in Settings().model_dump(by_alias=True)),
    *(({name: "7"}, name) for name in Settings().model_dump(by_alias=True)),
    ({"txnIdBlock": 0}, "txnIdBlock"),
    ({"txnIdBlock": 10**9}, "txnIdBlock"),
    ({"foldAfterRegistrations": 0}, "foldAfterRegistrations"),
    ({"gracePeriodMs": 10**15}, "gracePeriodMs"),
    ({"txnTimeoutMs": 300_001}, "above maxTxnTimeoutMs"),
    ({"orphanAgeMs": 1_000_000}, "orphanAgeMs = 1000000 is too close to maxTxnTimeoutMs"),
]


@pytest.mark.parametrize(("changes", "said"), SETTINGS, ids=lambda value: str(value)[:40])
def test_forged_settings_are_refused_in_headings_and_records(
    tmp_path: Path, lines: list[bytes], changes: dict[str, Any], said: str
) -> None:
    settings = {**json.loads(lines[0])["settings"], **changes}
    assert said in refused(tmp_path, packed(heading(lines, settings=settings)))
    record = {"id": "x", "ledgers": "file:///x", "createdAtMs": 0, "settings": settings}
    with pytest.raises(CorruptRecord, match=said):
        ClusterRecord.from_bytes(json.dumps(record).encode())


# --- forged lines -----------------------------------------------------------------------------------------------------


def line(key: str, partition: str, record: str) -> bytes:
    return json.dumps({"key": key, "partition": partition}).encode()[:-1] + b',"record":' + record.encode() + b"}"


FOREIGN = [
    ("/cluster", ""),
    ("/founding", ""),
    ("/restoring", ""),
    ("/sweep/turn", ""),
    ("/txn/id/0_1", "0_1"),
    ("/txn/tc-seq/0", ""),
    ("/txn/tc/leader/0", ""),
    ("/drivers/host%3A7:abc", ""),
    ("/elsewhere", ""),
    ("topics/a/b/c", ""),
    ("/topics/a/b", ""),
    ("/topics/a/b/c/d", ""),
    ("/log/log-1", "log"),
    ("", ""),
    ("/" + "x" * 100_000, ""),
    ("/topics/a/b/\x1b[2J/\n", ""),
]


@pytest.mark.parametrize(("key", "partition"), FOREIGN, ids=lambda value: repr(value)[:30])
def test_a_key_that_no_backup_has_is_refused_by_line(tmp_path: Path, lines: list[bytes], key: str, partition: str) -> None:
    said = refused(tmp_path, packed(heading([lines[0], line(key, partition, "{}")], records=1)))
    assert "line 2" in said
    assert shown(key[:50]) in said


def test_a_wrong_partition_key_is_refused(tmp_path: Path, lines: list[bytes]) -> None:
    said = refused(tmp_path, packed(heading([lines[0], line("/log/log-00000000000000000001", "", "{}")], records=1)))
    assert "line 2 (/log/log-00000000000000000001) has the partition key '', not 'log'" in said


@pytest.mark.parametrize("at", [1, 5])
def test_a_key_twice_or_out_of_order_is_refused(tmp_path: Path, lines: list[bytes], at: int) -> None:
    twice = [*lines[: at + 1], lines[at], *lines[at + 1 :]]
    assert f"line {at + 2} " in refused(tmp_path, packed(heading(twice, records=len(twice) - 1)))
    swapped = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
    assert "is not in order after" in refused(tmp_path, packed(swapped))


def test_a_registration_above_the_number_of_the_backup_is_refused(tmp_path: Path, lines: list[bytes]) -> None:
    added = line("/log/log-00000000000000000999", "log", '{"publishMs":0}')
    said = refused(tmp_path, packed(heading([lines[0], added], records=1)))
    assert "line 2 (/log/log-00000000000000000999) lies above the end of its log" in said


VALUES = ["", "null", "[]", "7", '"x"', "{", '{"a":1e9999999}', "[" * 100_000, '{"lastCommitted":"x"}', '{"a":NaN}', "\x00"]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value[:20])
def test_a_record_of_another_type_is_refused_by_line_and_key(tmp_path: Path, lines: list[bytes], value: str) -> None:
    at = next(i for i, one in enumerate(lines) if b"/txn/app/" in one)
    key = json.loads(lines[at])["key"]
    forged = [*lines[:at], line(key, key.removeprefix("/txn/app/"), value), *lines[at + 1 :]]
    said = refused(tmp_path, packed(forged))
    assert f"line {at + 1}" in said


def test_a_record_that_is_too_big_is_refused(tmp_path: Path, lines: list[bytes]) -> None:
    at = next(i for i, one in enumerate(lines) if b"/txn/app/" in one)
    key = json.loads(lines[at])["key"]
    value = json.dumps({"lastCommitted": 1, "by": "x" * 800_000})
    forged = [*lines[:at], line(key, key.removeprefix("/txn/app/"), value), *lines[at + 1 :]]
    assert f"line {at + 1} ({key}) has 8000" in refused(tmp_path, packed(forged))


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, origin: Path, lines: list[bytes]) -> None:
    data = (origin / "backup.gz").read_bytes()
    for length in range(0, len(data), 211):
        refused(tmp_path, data[:length])
    for count in range(len(lines)):
        refused(tmp_path, packed(lines[:count]))


def test_data_after_the_end_of_a_backup_is_refused(tmp_path: Path, origin: Path, lines: list[bytes]) -> None:
    data = (origin / "backup.gz").read_bytes()
    assert "there is data after its end" in refused(tmp_path, data + b"x")
    assert "there is data after its end" in refused(tmp_path, data + data)
    assert "there is data after its last line" in refused(tmp_path, gzip.compress(gzip.decompress(data) + b"{}\n"))


# --- random mutations -------------------------------------------------------------------------------------------------

HOSTILE: list[Any] = [None, -1, 0, 2**63 - 1, 1.5, "", "x", "../x", "\x00", [], {}, [[]], {"a": {}}, True, "topic://a/b/c", "%"]


def mutated(rng: random.Random, value: Any) -> Any:
    """Return the value with one leaf, key or branch replaced or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        rest = {k: v for k, v in value.items() if k != key}
        act = rng.random()
        if act < 0.15:
            return rest
        if act < 0.25:
            return {**rest, str(rng.choice(HOSTILE)): value[key]}
        return {**value, key: mutated(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], mutated(rng, value[at]), *value[at + 1 :]]
    return rng.choice(HOSTILE)


def forgeries(lines: Sequence[bytes], seeds: range) -> Iterator[tuple[int, list[bytes]]]:
    for seed in seeds:
        rng = random.Random(seed)
        at = rng.randrange(1, len(lines))
        head, _, value = lines[at].partition(b',"record":')
        fields = json.loads(head + b"}")
        if rng.random() < 0.2:
            key = fields["key"]
            cut = rng.randrange(len(key))
            fields["key"] = (
                key[:cut] + rng.choice(["", "/", "%", "%00", "~", ":", "-", "\x1b", "9"]) + key[cut + rng.randrange(3) :]
            )
        record = json.dumps(mutated(rng, json.loads(value[:-1])))
        yield seed, [*lines[:at], line(fields["key"], fields["partition"], record), *lines[at + 1 :]]


def restored(tmp_path: Path, origin: Path, data: bytes, look: Callable[[str], None]) -> bool:
    """Restore the data over a copy of the ledger root, and call `look` with the URL of the new cluster. Return whether both
    succeed. Both may raise only errors of the package.
    """
    place = tmp_path / "site"
    shutil.copytree(origin / "first" / "ledgers", place / "ledgers")
    (place / "forged.gz").write_bytes(data)
    try:
        restore(place / "forged.gz", f"file://{place}/again", ledgers=f"file://{place}/ledgers")
        look(f"file://{place}/again")
    except TxnSegmentError:
        return False
    finally:
        shutil.rmtree(place)
    return True


def test_a_restore_of_any_record_works_or_raises_a_product_error(tmp_path: Path, origin: Path, lines: list[bytes]) -> None:
    def look(url: str) -> None:
        with connect(url) as cluster:
            cluster.topics.list()
            cluster.subscriptions.list()

    done = [restored(tmp_path, origin, packed(forged), look) for _, forged in forgeries(lines, range(120))]
    assert 0 < sum(done) < len(done)
