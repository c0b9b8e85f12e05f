"""A write set too big for its record is stored in a manifest file. The registration has the file's length and checksum."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from ledgers.errors import TxnSegmentError
from metadata.client.passes import delete_orphans
from metadata.common.errors import CorruptRecord, SweepIncomplete
from metadata.read.reading import LogSelection
from metadata.records.records import Registration
from metadata.write import coordinator
from tests.support.bench import Bench, T, U


def _other_part(data: bytes) -> bytes:
    """Return a manifest of the same length with another number of rows."""
    whole = json.loads(data)
    part = next(iter(whole.values()))["parts"][0]
    part["rows"] += 1
    return json.dumps(whole).encode()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "another row count": _other_part,
    "cut short": lambda data: data[:-1],
    "not JSON": lambda data: b"?" + data[1:],
    "longer": lambda data: data + b" ",
}


@pytest.mark.parametrize("name", list(DAMAGE))
def test_a_damaged_manifest_is_an_error_that_names_the_manifest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MAX_INLINE", 1)
    bench = Bench()
    number = bench.party().coordinator.commit(bench.work(1)).number
    (path,) = (path for path in bench.disk.files if path.startswith("manifests/"))
    data, mtime = bench.disk.files[path]
    (log,) = (record.value for key, record in bench.state.records.items() if key.path.startswith("/log/"))
    assert Registration.from_bytes(log).manifest_bytes == len(data)
    bench.disk.files[path] = (DAMAGE[name](data), mtime)
    assert bench.disk.files[path][0] != data

    def named(wrong: pytest.ExceptionInfo[TxnSegmentError]) -> None:
        assert path in str(wrong.value)
        assert f"registration {number}" in str(wrong.value)

    with pytest.raises(CorruptRecord) as wrong:
        bench.read()
    named(wrong)
    with pytest.raises(CorruptRecord) as wrong:
        delete_orphans(bench.party().cluster)
    named(wrong)
    with pytest.raises(SweepIncomplete) as incomplete:
        bench.party().sweeper.sweep()
    named(incomplete)
    bench.disk.files[path] = (data, mtime)
    assert len(bench.read()) == 3
    bench.finish()


def test_statistics_alone_send_no_registration_into_a_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest is a file more to write and to read. So a registration that fits into its record without statistics has none."""
    bench = Bench()
    stats = "AQEBawIGKlQBawcEAQFrZXktNTYC"

    def committed(version: int) -> tuple[Registration, int]:
        work = bench.work(version)
        parts = {segment: [replace(part, stats=stats) for part in some] for segment, some in work.parts.items()}
        number = bench.party().coordinator.commit(replace(work, parts=parts)).number
        (log,) = (r.value for key, r in bench.state.records.items() if key.path.endswith(f"{number:020}") and "/log/" in key.path)
        return Registration.from_bytes(log), len(log)

    whole, size = committed(1)
    assert {part.stats for write in whole.segments.values() for part in write.parts} == {stats}
    monkeypatch.setattr(coordinator, "MAX_INLINE", size - 40)
    bare, _ = committed(2)
    assert bare.manifest is None
    assert {part.stats for write in bare.segments.values() for part in write.parts} == {None}
    monkeypatch.setattr(coordinator, "MAX_INLINE", 1)
    listed, _ = committed(3)
    assert listed.manifest is not None
    assert stats.encode() in bench.disk.files[listed.manifest][0]
    bench.finish()


def test_a_registration_without_checksum_is_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older version of the product wrote the registration without the manifest's length and checksum. Its rows are read."""
    monkeypatch.setattr(coordinator, "MAX_INLINE", 1)
    bench = Bench()
    bench.party().coordinator.commit(bench.work(1))
    store = bench.party().cluster.store
    for record in [r for key, r in bench.state.records.items() if key.path.startswith("/log/")]:
        without = Registration.of(record).model_copy(update={"manifest_bytes": None, "manifest_crc": None})
        store.put(record.key, without.to_bytes(), expect=record)
    assert len(bench.read()) == 3


def test_a_manifest_that_a_reader_has_planned_from_stays_for_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest of an idle cluster's last registration may be older than the orphan age. A reader has listed this registration.
    Then another commit allows a sweep to fold the registration and drop it from the log. The manifest stays for the grace period
    (found by the simulator with schedules of the kind "compacting", seed 600184).
    """
    monkeypatch.setattr(coordinator, "MAX_INLINE", 0)
    bench = Bench()
    bench.party().coordinator.commit(bench.work(1))
    (manifest,) = (path for path in bench.disk.files if path.startswith("manifests/"))
    bench.clock.now += bench.settings.orphan_age_ms + 1
    reading = bench.party().buffer.read(LogSelection((T, U)))
    bench.party().coordinator.commit(bench.work(2))
    bench.party().sweeper.sweep()
    bench.old()
    bench.party().sweeper.sweep()
    delete_orphans(bench.party().cluster)
    planned = [ledger.id for segment in reading.segments for ledger in segment.ledgers(0, reading.cut)]
    assert planned == [1, 1, 1]
    bench.clock.now += bench.settings.grace_period_ms + 1
    delete_orphans(bench.party().cluster)
    assert manifest not in bench.disk.files
