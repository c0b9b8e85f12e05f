"""After any sequence of compactions, every row has its old position and is read from its current file."""

from __future__ import annotations

import copy
import itertools
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers import snapshot_changes, snapshot_extents, snapshots
from ledgers.compaction import Moved, Policy, Unit, groups, merged
from ledgers.errors import CorruptPart
from ledgers.model import CompactedPart, Ledger, Part
from ledgers.part_statistics import Bounds, decode
from ledgers.parts import PartWriter, check_part, read_part, verify_part
from ledgers.storage import LedgerStorage

SEGMENT = "segment://public/default/t/0000-ffff-0"
FOLDER = "public/default/t/0000-ffff-0"
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("map", pa.map_(pa.string(), pa.float64()))])
WIDER = SCHEMA.append(pa.field("more", pa.list_(pa.field("element", pa.int32()))))

Row = tuple[str, int, int | None]
"""Position, publish time and id of a row."""


class Chain:
    """The chain of index snapshots of a segment, with real files."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.storage = LedgerStorage(str(root))
        self.storage.create()
        self.random = random.Random(seed)
        self.names = (f"n{k}" for k in itertools.count())
        self.rows: list[Row] = []
        self.path: str | None = None
        self.next = 1

    def add(self, count: int, *, parts: int = 2, most_rows: int = 6, schema: pa.Schema = SCHEMA, schema_id: int = 0) -> None:
        """Fold `count` new ledgers."""
        found = []
        for number in range(self.next, self.next + count):
            made, entry = [], 0
            for _ in range(self.random.randint(1, parts)):
                part, ids = self._part(schema, schema_id, self.random.randint(1, most_rows))
                made.append(part)
                for rows in part.entries:
                    self.rows += [(f"{number}:{entry}:{k}", 1000 + number, ids.pop(0)) for k in range(rows)]
                    entry += 1
            txn = None if number % 3 == 0 else f"0_{number}"
            found.append(Ledger(number, 1000 + number, txn, tuple(made)))
        self.next += count
        self.path = snapshots.extend(
            self.storage, self.path, SEGMENT, found, watermark=(self.next - 1, found[-1].last_entry), name=next(self.names)
        )

    def _part(self, schema: pa.Schema, schema_id: int, rows: int):  # type: ignore[no-untyped-def]
        ids = [self.random.randrange(10**9) for _ in range(rows)]
        columns = [
            pa.array(ids, pa.int64()),
            pa.array(["x" * (k % 5) for k in ids]),
            pa.array([[("a", k / 7)] for k in ids], schema[2].type),
        ]
        if len(schema) == 4:
            columns.append(pa.array([[k % 9, None] for k in ids], schema[3].type))
        name = next(self.names)
        writer = PartWriter(self.storage, FOLDER, schema, schema_id, staging_id="s", entry_rows=4, name_source=lambda: name)
        writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        part = writer.close()
        assert part is not None
        return part, ids

    def head(self) -> snapshots.SnapshotHead:
        assert self.path is not None
        return snapshots.read_head(self.storage, self.path)

    def compact(self, policy: Policy, after: int = -1) -> list[Moved]:
        done = []
        for units in list(groups(snapshots.read_ledgers(self.storage, self.head(), after, 10**9), policy)):
            moved = merged(self.storage, FOLDER, units, name=next(self.names))
            if moved is not None:
                self.path = snapshot_changes.moved(
                    self.storage, self.head(), moved.parts, moved.first, moved.last, name=next(self.names)
                )
                done.append(moved)
        return done

    def by_parts(self, after: int = -1, through: int = 10**9) -> list[Row]:
        """Return the rows, read part by part. The positions come from the ledgers of the snapshot."""
        found = []
        for ledger in snapshots.read_ledgers(self.storage, self.head(), after, through):
            base = 0
            for part in ledger.parts:
                check_part(self.storage, part)
                for rows in read_part(self.storage, part, batch_rows=3):
                    for k, value in enumerate(rows.batch.column("id").to_pylist()):
                        found.append((f"{ledger.id}:{base + rows.entry}:{rows.first_row + k}", ledger.publish_ms, value))
                base += len(part.entries)
        return found

    def planned(self, after: int = -1, through: int = 10**9) -> list[tuple[int, int, Part]]:
        """Return the extents of a read. The head's `runs` give them. Check that the ledgers give the same extents if the head has
        no `runs`.
        """
        head = self.head()
        found, slow = (
            [(s.ledger, s.last, s.part) for s in snapshot_extents.of_snapshot(self.storage, one, after, through, marks=False)]
            for one in (head, replace(head, runs=()))
        )
        assert found == slow
        return found

    def by_extents(self, after: int = -1, through: int = 10**9) -> list[Row]:
        """Return the rows, read extent by extent. The positions in compacted files come from the extents' `marks`."""
        found = []
        for one in snapshot_extents.of_snapshot(self.storage, self.head(), after, through, marks=True):
            row = one.part.first_row if isinstance(one.part, CompactedPart) else 0
            for rows in read_part(self.storage, one.part, batch_rows=3):
                ids = rows.batch.column("id").to_pylist()
                if one.marks is None:
                    first = rows.first_row
                    found += [(f"{one.ledger}:{one.base + rows.entry}:{first + k}", one.publish_ms, v) for k, v in enumerate(ids)]
                    continue
                index, inside = one.marks.of(row, len(ids))
                row += len(ids)
                for i, k, value in zip(index.tolist(), inside.tolist(), ids, strict=True):
                    marks = one.marks
                    found.append((f"{marks.ledgers[i]}:{marks.entries[i]}:{k}", int(marks.publish_ms[i]), value))
        return found


@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0, 1]), st.booleans()), min_size=1, max_size=5),
    target=st.sampled_from([3_000, 20_000, 1 << 20]),
    min_files=st.integers(2, 5),
    grows=st.booleans(),
    ranges=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=12)
def test_rows_positions_and_order_stay(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[tuple[int, int, bool]],
    target: int,
    min_files: int,
    grows: bool,
    ranges: list[tuple[int, int]],
    seed: int,
) -> None:
    chain = Chain(tmp_path_factory.mktemp("chain"), seed)
    for count, schema_id, compact in sizes:
        chain.add(count, schema=(SCHEMA, WIDER)[schema_id], schema_id=schema_id)
        if compact:
            before = chain.head()
            chain.compact(Policy(target, min_files, grows))
            after = chain.head()
            assert (after.ledgers, after.rows, after.bytes, after.watermark) == (
                before.ledgers,
                before.rows,
                before.bytes,
                before.watermark,
            )
            assert (after.last_ledger, after.publish_max) == (before.last_ledger, before.publish_max)
    assert chain.by_parts() == chain.rows
    assert chain.by_extents() == chain.rows
    for a, b in ranges:
        wanted = [row for row in chain.rows if a < int(row[0].split(":")[0]) <= b]
        assert chain.by_parts(a, b) == wanted
        assert chain.by_extents(a, b) == wanted
        assert sum(part.rows for _, _, part in chain.planned(a, b)) == len(wanted)


def test_many_files_become_few_and_again(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    for _ in range(4):
        chain.add(150)
        (moved,) = chain.compact(Policy())
        assert moved.files_after == 1
    assert len(chain.planned()) == 1, "all ledgers of the chain are in one file, which is one extent"
    assert len(chain.head().runs) == 1, "one run of the head stands for all of its ledgers"
    assert sum(part.rows for _, _, part in chain.planned(after=100)) < len(chain.rows)
    assert len(set(snapshot_changes.listed(chain.storage, chain.head()))) == 1
    assert chain.by_extents() == chain.rows
    assert not chain.compact(Policy()), "nothing is left to do"


def test_a_merge_that_ends_with_a_compacted_file_moves_all_of_its_ledgers(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.add(9, parts=1)
    chain.compact(Policy(), after=5)
    (moved,) = chain.compact(Policy())
    assert (moved.first, moved.last) == (1, 9)
    assert len(set(snapshot_changes.listed(chain.storage, chain.head()))) == 1
    assert chain.by_parts() == chain.rows


def test_a_file_is_rewritten_only_into_one_twice_as_large(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    written = 0
    for _ in range(20):
        chain.add(20, parts=1)
        written += sum(moved.bytes_after for moved in chain.compact(Policy(min_files=8, grows=True)))
    kept = sum((chain.storage.info(path) or (0, 0))[0] for path in set(snapshot_changes.listed(chain.storage, chain.head())))
    assert written < 7 * kept
    assert chain.by_parts() == chain.rows


def test_a_merge_beside_another_moves_the_remaining_ledgers(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.add(40)
    ledgers = list(snapshots.read_ledgers(chain.storage, chain.head(), -1, 10**9))
    (some,) = groups(ledgers[:25], Policy())
    late = merged(chain.storage, FOLDER, some, name="late")
    (others,) = groups(ledgers[15:], Policy())
    first = merged(chain.storage, FOLDER, others, name="first")
    assert first is not None
    assert late is not None
    for moved, name in ((first, "a"), (late, "b"), (late, "c")):
        path = snapshot_changes.moved(chain.storage, chain.head(), moved.parts, moved.first, moved.last, name=name)
        assert (path is None) == (name == "c"), "the ledgers were moved by the merge before"
        chain.path = path or chain.path
        assert sum(part.rows for _, _, part in chain.planned()) == len(chain.rows)
    assert chain.by_parts() == chain.rows
    assert chain.by_extents() == chain.rows


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, Chain]:
    """Return two chains of the same 300 ledgers, which are several blocks. The second chain is compacted into several files."""
    folded = Chain(tmp_path_factory.mktemp("long"))
    folded.add(300, parts=1, most_rows=2)
    compacted = copy.copy(folded)
    compacted.compact(Policy(target_bytes=100_000))
    return folded, compacted


@given(through=st.integers(0, 320), compact=st.booleans(), more=st.integers(1, 20))
@settings(max_examples=12)
def test_a_trimmed_chain_lists_the_rest(long: tuple[Chain, Chain], through: int, compact: bool, more: int) -> None:
    chain = copy.copy(long[compact])
    chain.path = snapshot_changes.trimmed(chain.storage, chain.head(), through, name=next(chain.names))
    chain.rows = [row for row in chain.rows if int(row[0].split(":")[0]) > through]
    assert chain.by_extents() == chain.rows
    assert (chain.head().rows, chain.head().ledgers) == (len(chain.rows), max(0, 300 - through))
    chain.add(more, parts=1, most_rows=2)
    assert sum(part.rows for _, _, part in chain.planned()) == len(chain.rows)
    chain.compact(Policy())
    assert sum(part.rows for _, _, part in chain.planned()) == len(chain.rows)
    assert chain.by_extents() == chain.rows
    assert chain.head().rows == len(chain.rows)


def test_a_damaged_part_is_never_copied(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.add(10)
    listed = sorted(set(snapshot_changes.listed(chain.storage, chain.head())))
    file = tmp_path / listed[3]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    before = {entry.path for entry in chain.storage.list("")}
    with pytest.raises(CorruptPart, match=listed[3]):
        chain.compact(Policy())
    assert {entry.path for entry in chain.storage.list("")} == before


def test_a_damaged_compacted_file_is_noticed(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.add(50)
    chain.compact(Policy())
    (one,) = snapshot_extents.of_snapshot(chain.storage, chain.head(), -1, 10**9, marks=False)
    file = tmp_path / one.part.path
    data = file.read_bytes()
    for at in random.Random(1).sample(range(len(data)), 300):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            verify_part(chain.storage, one.part)
        except CorruptPart:
            continue
        assert at < 4 or chain.by_parts() == chain.rows
    file.unlink()
    with pytest.raises(CorruptPart, match="load again"):
        check_part(chain.storage, one.part)


def test_a_file_of_rows_that_were_routed_in_different_ways_has_no_key(tmp_path: Path) -> None:
    """A read with a filter on the key looks only into the key's segment. So a compacted file has a key only if all its rows do."""
    chain = Chain(tmp_path)

    def unit(number: int, key: str | None) -> Unit:
        name = next(chain.names)
        writer = PartWriter(chain.storage, FOLDER, SCHEMA, 0, staging_id="s", name_source=lambda: name, key=key)
        writer.write(
            pa.RecordBatch.from_arrays([pa.array([number]), pa.array(["x"]), pa.array([None], SCHEMA[2].type)], schema=SCHEMA)
        )
        part = writer.close()
        assert part is not None
        return Unit(number, number, (part,))

    for keys, wanted in ((("id", "id"), "id"), (("id", None), None), ((None, "id"), None), (("id", "text"), None)):
        moved = merged(chain.storage, FOLDER, [unit(n, key) for n, key in enumerate(keys)], name=next(chain.names))
        assert moved is not None
        stats = {part.stats for part in moved.parts.values()}
        assert len(stats) == 1
        found = decode(stats.pop() or "")
        assert found.key == wanted
        assert found.columns["id"] == Bounds("i", 0, 1, nulls=False)
