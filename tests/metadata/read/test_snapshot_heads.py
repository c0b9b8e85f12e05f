"""The snapshot cache of a long-running process holds one head for each segment, up to a limit in bytes."""

from __future__ import annotations

from pathlib import Path

from ledgers import snapshots
from ledgers.model import Ledger, Part
from ledgers.storage import LedgerStorage
from metadata.read.snapshot_heads import SnapshotHeads


def chain(storage: LedgerStorage, number: int, folds: int) -> list[str]:
    """Write `folds` snapshots of a segment, one after the other. Return their paths."""
    segment = f"segment://public/default/t/{number:04x}-{number:04x}-{number}"
    heads: list[str] = []
    for fold in range(folds):
        ledgers = [Ledger(fold * 10 + i, 0, None, (Part(f"p{number}-{fold}-{i}", 1, 100, 7, (1,), 0),)) for i in range(5)]
        head = heads[-1] if heads else None
        heads.append(snapshots.extend(storage, head, segment, ledgers, watermark=(fold * 10 + 9, 0), name=f"n{fold}"))
    return heads


def test_one_head_is_kept_of_a_repeatedly_folded_segment(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    heads = SnapshotHeads(storage)
    for path in chain(storage, 0, 30):
        assert heads.get(path).path == path
    assert heads.kept == 1
    assert heads.bytes == len(storage.read(path))


def test_snapshot_heads_stay_within_their_bytes_by_least_recent_use(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    paths = [chain(storage, number, 1)[0] for number in range(20)]
    size = len(storage.read(paths[0]))
    heads = SnapshotHeads(storage, most_bytes=5 * size + size // 2)
    for path in paths:
        heads.get(paths[0])
        heads.get(path)
    assert heads.bytes <= heads.most_bytes
    assert heads.kept in (4, 5)
    storage.delete(paths[0])
    assert heads.get(paths[0]).path == paths[0], "the head that is used all the time was dropped"


def test_a_head_larger_than_the_bound_is_still_read(tmp_path: Path) -> None:
    storage = LedgerStorage(str(tmp_path))
    path = chain(storage, 0, 1)[0]
    assert SnapshotHeads(storage, most_bytes=1).get(path).ledgers == 5
