"""Validation of the records of index snapshots before their use. A correct checksum shows that a file is unchanged, but not which
program wrote it. All functions raise ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from ledgers.model import check_statistics

MAX_PATH: Final = 4096
_MOST: Final = 2**62


def check_numbers(values: Sequence[Any], least: int, what: str) -> None:
    """Check that all values are whole numbers of at least `least`, and so small that the sum of some thousands of values fits into
    64 bits.
    """
    if any(type(value) is not int for value in values):
        raise ValueError(f"{what} are not numbers")
    if values and (min(values) < least or max(values) > _MOST):
        raise ValueError(f"{what} of {min(values)} to {max(values)}")


def check_texts(values: Sequence[Any], what: str) -> None:
    if any(type(value) is not str for value in values):
        raise ValueError(f"{what} are not texts")


def check_block(record: Mapping[str, Any]) -> None:
    """Check a LedgerBlock record: columns of matching lengths, possible numbers, ledgers in ascending order."""
    try:
        _check_block(record)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a block without its columns: {error}") from error


def _check_block(record: Mapping[str, Any]) -> None:
    ids, counts, rows, entries = (record[name] for name in ("ids", "partCounts", "rows", "entries"))
    check_numbers(ids[:1], 0, "ledger ids")
    check_numbers(ids[1:], 1, "steps between ledger ids")
    check_numbers([sum(ids)], 0, "ledger ids")
    check_numbers(counts, 0, "numbers of parts")
    check_numbers(rows, 1, "rows of parts")
    check_numbers(record["bytes"], 0, "bytes of parts")
    check_numbers(record["crcs"], 0, "CRCs")
    check_numbers(record["schemas"], -1, "schemas")
    check_numbers(record["entryCounts"], 1, "numbers of entries")
    check_numbers(entries, 1, "rows of entries")
    check_numbers(record["publishMs"], -_MOST, "publish times")
    check_numbers([sum(rows), sum(record["bytes"]), *accumulate(record["publishMs"])], -_MOST, "sums")
    check_texts([*record["txns"], *record["names"], record["prefix"], record["suffix"]], "names")
    if len(record["prefix"]) + len(record["suffix"]) > MAX_PATH or max(map(len, record["names"]), default=0) > MAX_PATH:
        raise ValueError(f"a path of more than {MAX_PATH} characters")
    if not len(ids) == len(counts) == len(record["publishMs"]) == len(record["txns"]):
        raise ValueError(f"{len(ids)} ledgers in columns of different lengths")
    if any(len(record[name]) != sum(counts) for name in ("names", "rows", "bytes", "crcs", "schemas", "entryCounts")):
        raise ValueError(f"{sum(counts)} parts in columns of different lengths")
    _check_entries(rows, record["entryCounts"], entries)
    _check_statistics(record.get("stats") or (), sum(counts))
    if record.get("files"):
        _check_files(record)
    elif any(record.get("fileOf") or ()) or record.get("gaps"):
        raise ValueError("parts in a compacted file that is not named")


def _check_entries(rows: Sequence[int], counts: Sequence[int], entries: Sequence[int]) -> None:
    if sum(counts) != len(entries):
        raise ValueError(f"{len(entries)} entries, not {sum(counts)}")
    if len(rows) == len(entries):  # one entry for each part, the usual case
        right = rows == entries
    else:
        ends = list(accumulate(counts, initial=0))
        right = all(sum(entries[ends[k] : ends[k + 1]]) == total for k, total in enumerate(rows))
    if not right:
        raise ValueError("parts whose entries have a different number of rows")


def _check_statistics(stats: Sequence[Any], parts: int) -> None:
    if len(stats) not in (0, parts):
        raise ValueError(f"statistics of {len(stats)} parts, not {parts}")
    for one in stats:
        check_statistics(one)


def _check_files(record: Mapping[str, Any]) -> None:
    files, file_of, gaps = record["files"], record["fileOf"], iter(record["gaps"])
    check_numbers(file_of, 0, "numbers of compacted files")
    check_numbers(record["gaps"], -_MOST, "gaps")
    if len(file_of) != len(record["rows"]) or max(file_of, default=0) > len(files):
        raise ValueError("parts in compacted files that are not named")
    if len(record["gaps"]) != sum(1 for number in file_of if number):
        raise ValueError("the number of gaps differs from that of parts in compacted files")
    lengths = [0]
    for file in files:
        check_texts([file["path"]], "paths")
        check_statistics(file.get("stats", ""))
        check_numbers([file["bytes"], file["crc"], *file["groups"]], 0, "bytes, CRC or row groups of a compacted file")
        lengths.append(sum(file["groups"]))
    before = end = 0
    for number, total in zip(file_of, record["rows"], strict=True):
        if number:
            first = next(gaps) + (end if number == before else 0)
            end = first + total
            if first < 0 or end > lengths[number]:
                raise ValueError("a part that lies outside of its compacted file")
        before = number


def check_head(record: Mapping[str, Any]) -> None:
    """Check a SnapshotHead record."""
    try:
        _check_head(record)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a head without its fields: {error}") from error


def _check_head(record: Mapping[str, Any]) -> None:
    check_texts([record["segment"]], "segments")
    check_numbers([record["ledgerId"], record["entryId"]], -1, "a watermark")
    check_block(record["tail"])
    _check_statistics(record.get("runStats") or (), len(record.get("runs", ())))
    last = -1
    for file in record["files"]:
        check_texts([file["path"]], "paths")
        check_numbers([value for name, value in file.items() if name != "path"], 0, "numbers of a ledger file")
        if not last < file["first"] <= file["last"]:
            raise ValueError(f"ledger files out of order at {file['first']}")
        last = file["last"]
    if record["tail"]["ids"] and record["tail"]["ids"][0] <= last:
        raise ValueError(f"a duplicate ledger at {last}")
    for run in record.get("runs", ()):
        check_texts([run["path"], run["txn"]], "paths")
        check_numbers([*run["groups"], *(v for n, v in run.items() if n not in ("path", "txn", "groups", "schema"))], 0, "runs")
        check_numbers([run["schema"]], -1, "schemas")
        if run["last"] < run["ledger"] or run["rows"] < 1 or run["first_row"] + run["rows"] > sum(run["groups"]):
            raise ValueError(f"an impossible run at ledger {run['ledger']}")
