"""A part returns its written rows, in whole entries and bounded memory, or raises CorruptPart."""

from __future__ import annotations

import dataclasses
import errno
import functools
import itertools
import random
import threading
from array import array
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers import part_reader
from ledgers.block_sums import BLOCK, KEY, BadBlock, CheckedInput, read_sums
from ledgers.disk import LocalDisk, in_place_of_the_disk
from ledgers.errors import CorruptPart, SchemaError, StorageError
from ledgers.footer import NotParquet, read_footer
from ledgers.model import Part
from ledgers.parts import PartWriter, check_part, close_all, part_staging_id, read_part, verify_part
from ledgers.storage import LedgerStorage

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("a.b", pa.int32()),
        ("a", pa.struct([("b", pa.int16()), ("c", pa.list_(pa.field("element", pa.decimal128(20, 3))))])),
        ("at", pa.timestamp("us", tz="UTC")),
        ("took", pa.duration("us")),
        ("raw", pa.binary()),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)


@pytest.fixture
def storage(tmp_path: Path) -> LedgerStorage:
    found = LedgerStorage(str(tmp_path))
    found.create()
    return found


def table(rows: int, seed: int = 0) -> pa.Table:
    r = random.Random(seed)

    def maybe(make: Callable[[], object]) -> list[object]:
        return [None if r.random() < 0.2 else make() for _ in range(rows)]

    columns = [
        list(range(rows)),
        maybe(lambda: r.choice("xyz") * r.randrange(20)),
        maybe(lambda: r.randrange(1000)),
        maybe(lambda: {"b": r.randrange(100), "c": [None, r.randrange(10**6)][: r.randrange(3)]}),
        maybe(lambda: r.randrange(2 * 10**15)),
        maybe(lambda: r.randrange(10**12)),
        maybe(lambda: r.randbytes(r.randrange(30))),
        maybe(lambda: [(str(k), r.random()) for k in range(r.randrange(3))]),
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def write(storage: LedgerStorage, rows: pa.Table, *, batch: int = 100, **options: object) -> Part:
    names = itertools.count()
    writer = PartWriter(
        storage, "t/s", rows.schema, 3, staging_id="stage-1", name_source=lambda: f"p{id(rows)}-{next(names)}", **options
    )
    for piece in rows.to_batches(max_chunksize=batch):
        writer.write(piece)
    part = writer.close()
    assert part is not None
    return part


def read(storage: LedgerStorage, part: Part, **options: object) -> pa.Table:
    return pa.Table.from_batches([found.batch for found in read_part(storage, part, **options)])


@given(
    rows=st.integers(1, 400),
    batch=st.integers(1, 200),
    entry_rows=st.integers(1, 300),
    entry_bytes=st.integers(1, 20_000),
    compression=st.sampled_from(["zstd", "lz4", "snappy", "none"]),
    batch_rows=st.integers(1, 300),
)
@settings(max_examples=25)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    batch: int,
    entry_rows: int,
    entry_bytes: int,
    compression: str,
    batch_rows: int,
) -> None:
    storage = LedgerStorage(str(tmp_path_factory.mktemp("ledgers")))
    whole = table(rows, seed=rows)
    writer = PartWriter(
        *(storage, "f", SCHEMA, 7),
        staging_id="s",
        compression=compression,
        entry_bytes=max(entry_bytes, 500),
        entry_rows=entry_rows,
    )
    for piece in whole.to_batches(max_chunksize=batch):
        writer.write(piece)
    part = writer.close()
    assert part is not None
    assert (part.rows, sum(part.entries), part.schema) == (rows, rows, 7)
    assert max(part.entries) <= entry_rows
    found = list(read_part(storage, part, batch_rows=batch_rows))
    assert pa.Table.from_batches([f.batch for f in found]).equals(whole)
    starts = [0, *itertools.accumulate(part.entries)]
    for item in found:
        at = starts[item.entry] + item.first_row
        assert item.batch.num_rows <= batch_rows
        assert item.batch.column("id")[0].as_py() == at
    verify_part(storage, part)
    check_part(storage, part)


def test_an_entry_stays_below_its_byte_limit(storage: LedgerStorage) -> None:
    part = write(storage, pa.table({"id": pa.array(range(1000), pa.int64())}), batch=30, entry_bytes=500)
    assert set(part.entries[:-1]) == {60}, "two batches of 240 bytes fit, a third does not"


@pytest.mark.parametrize("claimed", [85, 1_000, 2**32 - 1])
def test_a_footer_that_claims_more_than_its_file_is_refused(claimed: int) -> None:
    data = b"PAR1" + bytes(84) + claimed.to_bytes(4, "little") + b"PAR1"
    with pytest.raises(NotParquet, match=f"its footer claims {claimed + 8} bytes of {len(data)}"):
        read_footer(pa.BufferReader(data))


def test_entries_and_columns_are_read_without_the_rest(storage: LedgerStorage) -> None:
    whole = table(1000)
    part = write(storage, whole, entry_rows=100)
    assert part.entries == (100,) * 10
    found = read(storage, part, columns=["at", "a", "not here", "id"], first_entry=3, last_entry=4)
    assert found.equals(whole.select(["at", "a", "id"]).slice(300, 200))
    assert read(storage, part, columns=["a.b"]).equals(whole.select(["a.b"]))
    none = [f.batch for f in read_part(storage, part, columns=[])]
    assert sum(b.num_rows for b in none) == 1000
    assert not any(b.num_columns for b in none)


def test_a_writer_without_rows_leaves_no_file(storage: LedgerStorage) -> None:
    writer = PartWriter(storage, "t", SCHEMA, 0, staging_id="s")
    writer.write(table(0).to_batches()[0] if table(0).to_batches() else pa.RecordBatch.from_pylist([], schema=SCHEMA))
    assert writer.close() is None
    writer = PartWriter(storage, "t", SCHEMA, 0, staging_id="s", entry_rows=10)
    for piece in table(100).to_batches():
        writer.write(piece)
    assert len(list(storage.list(""))) == 1
    writer.discard()
    assert list(storage.list("")) == []


class _Watched(LocalDisk):
    """Notes its calls. `broken`: the name of a file that cannot get its final name."""

    def __init__(self, broken: str = "") -> None:
        self.calls: list[str] = []
        self._broken, self._noting = broken, threading.Lock()

    def _note(self, call: str) -> None:
        with self._noting:
            self.calls.append(call)

    def sync(self, path: Path) -> None:
        if path.is_file():
            self._note("sync")
        super().sync(path)

    def sync_folder(self, path: Path) -> None:
        self._note(f"sync folder {path.name}")
        super().sync_folder(path)

    def link(self, path: Path, new: Path) -> None:
        self._note("link")
        if self._broken and self._broken in new.name:
            raise OSError(errno.ENOSPC, "full", str(new))
        super().link(path, new)


def _parts_of(storage: LedgerStorage, *names: str) -> list[PartWriter]:
    writers = [PartWriter(storage, f"t/{name}", SCHEMA, 0, staging_id="s", name_source=lambda name=name: name) for name in names]
    for count, writer in enumerate(writers, start=1):
        for piece in table(10 * count).to_batches():
            writer.write(piece)
    return writers


def test_parts_that_are_closed_together_are_durable_before_they_get_their_names(tmp_path: Path) -> None:
    with in_place_of_the_disk(disk := _Watched()):
        storage = LedgerStorage(str(tmp_path))
        storage.create()
        writers = _parts_of(storage, "one", "two", "three")
        empty = PartWriter(storage, "t/four", SCHEMA, 0, staging_id="s")
        parts = close_all([*writers, empty])
    assert [None if part is None else part.rows for part in parts] == [10, 20, 30, None]
    assert disk.calls[-9:-3] == ["sync"] * 3 + ["link"] * 3
    assert sorted(disk.calls[-3:]) == ["sync folder one", "sync folder three", "sync folder two"]
    for part in parts[:3]:
        assert part is not None
        check_part(storage, part)


def test_no_part_counts_if_one_of_those_closed_together_cannot_be_published(tmp_path: Path) -> None:
    with in_place_of_the_disk(_Watched(broken="two")):
        storage = LedgerStorage(str(tmp_path))
        storage.create()
        with pytest.raises(StorageError, match=r"two\.parquet.*no space left"):
            close_all(_parts_of(storage, "one", "two", "three"))
        left = [entry.path for entry in storage.list("")]
    assert left == ["t/one/one.parquet"], "an orphan, and no temporary file"


def test_the_error_of_many_parts_that_were_closed_together_is_short(tmp_path: Path) -> None:
    with in_place_of_the_disk(_Watched(broken="part-1")):
        storage = LedgerStorage(str(tmp_path))
        storage.create()
        with pytest.raises(StorageError, match=r"part-0\.parquet.* and 36 more files: .*no space left") as failed:
            close_all(_parts_of(storage, *(f"part-{i}" for i in range(40))))
    assert len(str(failed.value)) < 2000


def test_a_batch_of_another_schema_is_refused(storage: LedgerStorage) -> None:
    writer = PartWriter(storage, "t", SCHEMA, 0, staging_id="s")
    with pytest.raises(SchemaError):
        writer.write(pa.record_batch({"id": [1]}))
    writer.discard()


def test_staging_id_and_name(storage: LedgerStorage) -> None:
    part = write(storage, table(5))
    assert part_staging_id(storage, part.path) == "stage-1"
    assert part.path.endswith(".parquet")
    storage.publish("t/none.parquet", b"not a part at all")
    with pytest.raises(CorruptPart, match="not a part"):
        part_staging_id(storage, "t/none.parquet")


def _damage(storage: LedgerStorage, part: Part, data: bytes) -> None:
    storage.delete(part.path)
    storage.publish(part.path, data)


def test_a_missing_shorter_longer_or_replaced_part_is_refused(storage: LedgerStorage) -> None:
    part = write(storage, table(300), entry_rows=100)
    data = storage.read(part.path)
    other = storage.read(write(storage, table(300, seed=9), entry_rows=100).path)
    for wrong in (data[:-1], data[: len(data) // 2], data[:3], b"", data + b"x", other, data[:-4] + b"PAR2", b"\0" * len(data)):
        _damage(storage, part, wrong)
        with pytest.raises(CorruptPart, match=part.path) as caught:
            read(storage, part, where="segment://t/n/x, ledger 7")
        assert "ledger 7" in str(caught.value)
    storage.delete(part.path)
    with pytest.raises(CorruptPart, match="missing"):
        read(storage, part)
    _damage(storage, part, data)
    for wrong_part in (
        dataclasses.replace(part, rows=299),
        dataclasses.replace(part, crc=part.crc ^ 1),
        dataclasses.replace(part, entries=(100, 101, 99)),
        dataclasses.replace(part, bytes=part.bytes + 1),
    ):
        with pytest.raises(CorruptPart):
            check_part(storage, wrong_part)


@pytest.fixture
def without_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parts be read as those that have no checksums of blocks (txnsegment before 2026-11-27)."""
    monkeypatch.setattr(part_reader, "read_sums", lambda metadata, end: None)


def harmless_changes(storage: LedgerStorage, file: Path, part: Part, whole: pa.Table) -> int:
    """Change each byte of a part. Return how often a read returned the right rows. All other reads raised CorruptPart."""
    data = file.read_bytes()
    r = random.Random(5)
    harmless = 0
    for at in range(4, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= r.randrange(1, 256)
        file.write_bytes(damaged)
        try:
            assert read(storage, part).equals(whole)
        except CorruptPart:
            continue
        harmless += 1
    return harmless


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_every_changed_byte_of_a_part_is_noticed(storage: LedgerStorage, tmp_path: Path, compression: str) -> None:
    whole = table(60).select(["id", "text", "a", "took"])
    part = write(storage, whole, entry_rows=30, compression=compression)
    assert harmless_changes(storage, tmp_path / part.path, part, whole) == 0


def test_every_block_of_a_large_part_is_checked(storage: LedgerStorage, tmp_path: Path) -> None:
    """The part has some 60 blocks in two entries. One byte of each block is changed, then all rows are read."""
    values = random.Random(1)
    whole = pa.table({"a": [values.randbytes(1000) for _ in range(2000)], "b": [values.randbytes(1000) for _ in range(2000)]})
    part = write(storage, whole, entry_rows=1000)
    file = tmp_path / part.path
    data = file.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    assert read(storage, part).equals(whole)
    for begin in range(0, len(data) - footer, BLOCK):
        at = values.randrange(max(begin, 4), min(begin + BLOCK, len(data) - footer))
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptPart, match=f"the bytes {begin} to [0-9]+ do not have their checksum"):
            read(storage, part)


def test_a_part_with_bytes_that_have_no_checksum_is_never_registered(
    storage: LedgerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet's page index is written after the rows, when the file is closed. Our writer has none."""
    monkeypatch.setattr(pq, "ParquetWriter", functools.partial(pq.ParquetWriter, write_page_index=True))
    with pytest.raises(StorageError, match="of them have checksums"):
        write(storage, table(10).select(["id"]))


def test_a_part_that_is_cut_short_while_it_is_read_is_noticed() -> None:
    checked = CheckedInput(pa.BufferReader(bytes(10)), array("I", [0]), 20)
    with pytest.raises(BadBlock, match="it ends after 10 bytes"):
        checked.read_buffer(20)


def test_checksums_that_do_not_fit_the_file_are_refused(tmp_path: Path) -> None:
    def metadata(sums: bytes) -> pq.FileMetaData:
        pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({KEY: sums}), tmp_path / "file")
        return pq.read_metadata(tmp_path / "file")

    assert read_sums(metadata(b"AQAAAAIAAAA="), BLOCK + 1) is not None
    with pytest.raises(BadBlock, match="2 checksums for 65536 bytes"):
        read_sums(metadata(b"AQAAAAIAAAA="), BLOCK)
    for text in (b"AQAAA", b"AQA="):
        with pytest.raises(ValueError):
            read_sums(metadata(text), BLOCK)


@pytest.mark.usefixtures("without_sums")
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_no_changed_byte_ever_gives_other_rows(storage: LedgerStorage, tmp_path: Path, compression: str) -> None:
    """Each byte of a small part without checksums of blocks is changed. The read raises CorruptPart or returns the right rows,
    since readers ignore some bytes of page headers (statistics).
    """
    whole = table(60).select(["id", "text", "a", "took"])
    part = write(storage, whole, entry_rows=30, compression=compression)
    assert harmless_changes(storage, tmp_path / part.path, part, whole) < part.bytes / 4


@pytest.mark.usefixtures("without_sums")
def test_a_level_encoding_that_changed_is_noticed(storage: LedgerStorage, tmp_path: Path) -> None:
    """A page header of a part without checksums of blocks gets the level encoding BIT_PACKED (8) instead of RLE (6). The read
    raises CorruptPart. If it decoded the levels as BIT_PACKED, it would return nulls in other rows.
    """
    whole = table(60).select(["a.b"])
    part = write(storage, whole)
    file = tmp_path / part.path
    data = file.read_bytes()
    changed = 0
    for at in range(4, 120):
        if data[at] == 6:
            file.write_bytes(data[:at] + b"\x08" + data[at + 1 :])
            try:
                assert read(storage, part).equals(whole)
            except CorruptPart:
                changed += 1
    assert changed


def test_a_discard_that_fails_does_not_hide_why_the_publish_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file can get its name, and the first of three files cannot be deleted. The error names the cause, and two files go."""
    storage, schema = LedgerStorage(str(tmp_path)), pa.schema([("id", pa.int64())])
    writers = [PartWriter(storage, f"t/{i}", schema, 1, staging_id="a") for i in range(3)]
    for writer in writers:
        writer.write(pa.record_batch([pa.array([1])], schema=schema))
    deleted, unlink = [], LocalDisk.unlink

    def full(_disk: LocalDisk, path: Path, _new: Path) -> None:
        raise OSError(errno.ENOSPC, "no space", str(path))

    def denied(disk: LocalDisk, path: Path) -> None:
        deleted.append(path)
        if len(deleted) == 1:
            raise PermissionError(errno.EACCES, "denied", str(path))
        unlink(disk, path)

    monkeypatch.setattr(LocalDisk, "link", full)
    monkeypatch.setattr(LocalDisk, "unlink", denied)
    with pytest.raises(StorageError, match="no space left") as caught:
        close_all(writers)
    assert "could not be discarded" in str(caught.value.__cause__.__notes__)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [deleted[0]]
