"""A chain of index snapshots lists the same ledgers as a plain list, and each damage to it is noticed."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers import snapshots
from ledgers.errors import CorruptSnapshot
from ledgers.model import Ledger, Part
from ledgers.storage import LedgerStorage

SEGMENT = "segment://public/default/t/0000-ffff-0"


def ledger(number: int, parts: int = 1) -> Ledger:
    r = random.Random(number)
    made = []
    for k in range(parts):
        entries = tuple(r.randrange(1, 10**6) for _ in range(r.choice([1, 1, 3])))
        path = f"public/default/t/0000-ffff-0/{r.getrandbits(128):032x}{k}.parquet"
        made.append(Part(path, sum(entries), r.randrange(1, 10**9), r.getrandbits(32), entries, r.randrange(5)))
    return Ledger(number, 1_700_000_000_000 + r.randrange(10**6), r.choice([None, f"0_{number}"]), tuple(made))


def test_names_are_distinct_from_other_files(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    head = snapshots.extend(storage, None, SEGMENT, [ledger(3)], watermark=(3, 0), name="n1")
    assert head.endswith(snapshots.SUFFIX)
    assert snapshots.files(snapshots.read_head(storage, head)) == [head]


@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    gaps=st.integers(1, 3),
    wide=st.booleans(),
    ranges=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 9000)), max_size=4),
)
@settings(max_examples=25)
def test_a_snapshot_chain_lists_the_same_ledgers_as_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], gaps: int, wide: bool, ranges: list[tuple[int, int]]
) -> None:
    storage = LedgerStorage(str(tmp_path_factory.mktemp("ledgers")))
    names = (f"n{k}" for k in itertools.count())
    numbers = itertools.count(1, gaps)
    model: list[Ledger] = []
    path = None
    for size in sizes:
        new = [ledger(next(numbers), parts=5 if wide and k % 50 == 0 else 1) for k in range(size)]
        model += new
        mark = (model[-1].id if model else 0, 0)
        path = snapshots.extend(storage, path, SEGMENT, new, watermark=mark, name=next(names))
    assert path is not None
    head = snapshots.read_head(storage, path)
    assert list(snapshots.read_ledgers(storage, head, -1, 10**9)) == model
    for after, through in ranges:
        assert list(snapshots.read_ledgers(storage, head, after, through)) == [x for x in model if after < x.id <= through]
    assert (head.segment, head.watermark) == (SEGMENT, mark)
    assert (head.ledgers, head.rows, head.bytes) == (len(model), sum(x.rows for x in model), sum(x.bytes for x in model))
    assert head.last_ledger == (model[-1].id if model else -1)
    assert head.publish_max == max([0, *(x.publish_ms for x in model)])
    running = 0
    for file in head.files:
        running = max([running, *(x.publish_ms for x in model if file.first <= x.id <= file.last)])
        assert file.publish_max == running
    levels = [file.level for file in head.files]
    assert levels == sorted(levels, reverse=True)
    assert all(levels.count(level) < snapshots.FANOUT for level in levels)


def test_folding_costs_the_new_rows_only_and_a_range_opens_overlapping_files_only(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    path = None
    written = 0
    for at in range(1, 20_001, 100):
        new = [ledger(n) for n in range(at, at + 100)]
        path = snapshots.extend(storage, path, SEGMENT, new, watermark=(at + 99, 0), name=f"n{at}")
    assert path is not None
    written = sum(file.bytes for file in storage.list(""))
    head = snapshots.read_head(storage, path)
    live = sum((storage.info(p) or (0, 0))[0] for p in snapshots.files(head))
    assert written < 12 * live
    assert len(head.files) <= 2 * snapshots.FANOUT
    for file in head.files[:-1]:
        storage.delete(file.path)
    last = head.files[-1]
    assert [x.id for x in snapshots.read_ledgers(storage, head, last.first - 1, last.last)] == list(
        range(last.first, last.last + 1)
    )


def test_any_avro_tool_reads_the_files(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    path = snapshots.extend(storage, None, SEGMENT, [ledger(n) for n in range(1, 601)], watermark=(600, 0), name="n")
    head = snapshots.read_head(storage, path)
    with (tmp_path / head.files[0].path).open("rb") as file:
        assert sum(len(block["ids"]) for block in fastavro.reader(file)) == 600


def test_numbers_out_of_order_are_refused(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    path = snapshots.extend(storage, None, SEGMENT, [ledger(5)], watermark=(7, 0), name="n")
    for numbers, mark in (([5], 8), ([9, 8], 9), ([9], 8), ([], 6)):
        with pytest.raises(ValueError, match=r"ledger|watermark"):
            snapshots.extend(storage, path, SEGMENT, [ledger(n) for n in numbers], watermark=(mark, 0), name="m")


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    model = [ledger(n) for n in range(1, 301)]
    path = snapshots.extend(storage, None, SEGMENT, model[:290], watermark=(290, 0), name="n")
    path = snapshots.extend(storage, path, SEGMENT, model[290:], watermark=(300, 0), name="m")
    head = snapshots.read_head(storage, path)
    r = random.Random(1)
    for name in snapshots.files(head):
        file = tmp_path / name
        data = file.read_bytes()
        places = range(len(data)) if len(data) < 3000 else sorted(r.sample(range(len(data)), 1500))
        for at in places:
            file.write_bytes(data[:at] + bytes([data[at] ^ r.randrange(1, 256)]) + data[at + 1 :])
            try:
                found = list(snapshots.read_ledgers(storage, snapshots.read_head(storage, path), -1, 10**9))
            except CorruptSnapshot:
                continue
            assert found == model  # the changed byte is in a sync marker, which readers do not need
        for wrong in (data[:-1], data[:20], b""):
            file.write_bytes(wrong)
            if wrong != data[:-1] or name == path:
                with pytest.raises(CorruptSnapshot, match=name):
                    list(snapshots.read_ledgers(storage, snapshots.read_head(storage, path), -1, 10**9))
        file.unlink()
        with pytest.raises(CorruptSnapshot, match="missing"):
            list(snapshots.read_ledgers(storage, snapshots.read_head(storage, path), -1, 10**9))
        file.write_bytes(data)
