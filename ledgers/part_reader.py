"""Reads parts, entry by entry, with only the wanted columns. Rows are checked against the Part before they are returned.

A damaged, truncated, missing or replaced part raises CorruptPart. A read never returns fewer or other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ledgers.block_sums import BadBlock, CheckedInput, read_sums
from ledgers.errors import CorruptPart, MissingFile
from ledgers.footer import Footer, NotParquet, read_footer
from ledgers.io_errors import explain, is_of_storage
from ledgers.leaves import leaves_of
from ledgers.model import CompactedPart, Part
from ledgers.page_headers import BadPage, check_pages
from ledgers.part_statistics import decode
from ledgers.part_writer import STAGING_KEY
from ledgers.storage import LedgerStorage

BATCH_ROWS = 10_000


class EntryBatch(NamedTuple):
    """Rows of one entry: the entry's index in the part (from 0), the index of the first row in the entry (from 0), and the rows."""

    entry: int
    first_row: int
    batch: pa.RecordBatch


def read_part(
    storage: LedgerStorage,
    part: Part,
    *,
    columns: Sequence[str] | None = None,
    first_entry: int = 0,
    last_entry: int | None = None,
    batch_rows: int = BATCH_ROWS,
    where: str = "",
) -> Iterator[EntryBatch]:
    """Yield the rows of entries `first_entry` to `last_entry` (inclusive; None: the last), in order.

    `columns`: names of top-level columns in the wanted order (None: all). Columns that the part lacks are left out (`conform` fills
    them with nulls). Batches never cross entries. Memory holds one entry's compressed bytes and a batch. `where` names the owner of
    the part in errors. Raises CorruptPart, StorageError.
    """
    yield from _entries(storage, part, columns, first_entry, last_entry, batch_rows, where, headers=storage.is_local)


def _entries(
    storage: LedgerStorage,
    part: Part,
    columns: Sequence[str] | None,
    first_entry: int,
    last_entry: int | None,
    batch_rows: int,
    where: str,
    *,
    headers: bool,
) -> Iterator[EntryBatch]:
    """Yield rows as `read_part` does. `headers`: if the part has no checksums of blocks, check the page headers of each entry
    before it is read. On an object store this costs a round trip for each page. Object stores have checksums of whole files. So
    only `verify_part` checks the page headers of files on object stores.
    """
    with _checked(storage, part, where) as (stream, file):
        stored = file.schema_arrow
        names = stored.names
        wanted = names if columns is None else [name for name in columns if name in names]
        leaves = leaves_of(stored)
        opened = _Opened(
            stream if headers else None,
            file,
            pa.schema([stored.field(name) for name in wanted]),
            [index for name in wanted for index in leaves[names.index(name)]],
            batch_rows,
        )
        end = len(part.entries) if last_entry is None else last_entry + 1
        first = part.first_row if isinstance(part, CompactedPart) else 0
        begin = first + sum(part.entries[:first_entry])
        entry, row = first_entry, 0
        for batch in opened.rows(begin, begin + sum(part.entries[first_entry:end])):
            at = 0
            while at < batch.num_rows:
                if row == part.entries[entry]:
                    entry, row = entry + 1, 0
                taken = batch.slice(at, part.entries[entry] - row)
                yield EntryBatch(entry, row, taken)
                row += taken.num_rows
                at += taken.num_rows


class _Opened(NamedTuple):
    """A checked file with selected columns. `stream`: for the checks of page headers; None: no checks."""

    stream: pa.NativeFile | None
    file: pq.ParquetFile
    schema: pa.Schema
    indices: list[int]
    batch_rows: int

    def rows(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows `begin` (inclusive) to `end` (exclusive) of the file, in order. No batch crosses a row group."""
        metadata = self.file.metadata
        start = 0
        for group in range(metadata.num_row_groups):
            count = metadata.row_group(group).num_rows
            if start < end and start + count > begin:
                yield from self._group(group, max(begin - start, 0), min(end - start, count))
            start += count

    def _group(self, group: int, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        if self.stream is not None:
            check_pages(self.stream, self.file.metadata, group, self.indices)
        row = 0
        batches = self.file.reader.iter_batches(self.batch_rows, row_groups=[group], column_indices=self.indices, use_threads=False)
        for batch in batches:
            if row + batch.num_rows > begin and row < end:
                skipped = max(begin - row, 0)
                yield _ordered(batch.slice(skipped, min(end - row, batch.num_rows) - skipped), self.schema)
            row += batch.num_rows
            if row >= end:
                break
        if row < end:
            raise BadPage(f"row group {group} gave {row} rows, not {end}")


def verify_part(storage: LedgerStorage, part: Part, *, where: str = "") -> None:
    """Read and check every page with rows of a part, and compare the rows with the part's statistics. Raises CorruptPart,
    StorageError.
    """
    from ledgers.statistics_writer import outside  # imported late, because a read compares no statistics

    try:
        known = None if part.stats is None else decode(part.stats)
    except ValueError as error:
        raise _corrupt(storage, part, where, str(error)) from error
    for found in _entries(storage, part, None, 0, None, BATCH_ROWS, where, headers=True):
        wrong = None if known is None else outside(known, found.batch)
        if wrong is not None:
            raise _corrupt(storage, part, where, wrong)


def check_part(storage: LedgerStorage, part: Part, *, where: str = "") -> None:
    """Compare a part's length, footer CRC, rows and entries with its registration, without reading pages.

    Raises CorruptPart, StorageError.
    """
    with _checked(storage, part, where):
        return


def part_staging_id(storage: LedgerStorage, path: str) -> str | None:
    """Return the staging id in a file's metadata, or None. Raises CorruptPart for a file that is not a part."""
    try:
        with storage.open_input(path) as stream:
            metadata = read_footer(stream).metadata().metadata or {}
        found = metadata.get(STAGING_KEY)
        return None if found is None else found.decode()
    except (NotParquet, pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and is_of_storage(error):
            raise explain(error, "read", storage.place(path)) from error
        raise CorruptPart(f"The file {path} in {storage.uri} is not a part: {error}.") from error


@contextmanager
def _checked(storage: LedgerStorage, part: Part, where: str) -> Iterator[tuple[pa.NativeFile | None, pq.ParquetFile]]:
    """Open a part and check that its length, footer CRC, rows and entries match its registration. Yield the file, and the stream
    whose page headers are still to be checked (None: all bytes are checked as they are read).
    """
    try:
        with storage.open_input(part.path) as stream:
            yield _open(storage, stream, part, where)
    except MissingFile as error:
        raise _missing(storage, part, where) from error
    except (NotParquet, BadBlock, BadPage) as error:
        raise _corrupt(storage, part, where, str(error)) from error
    except (pa.ArrowException, ValueError, OverflowError) as error:  # numbers and names that pyarrow cannot convert to Python
        raise _corrupt(storage, part, where, str(error)) from error
    except OSError as error:
        if not is_of_storage(error):  # pyarrow reports a damaged page as an OSError, too
            raise _corrupt(storage, part, where, str(error)) from error
        raise explain(error, "read", storage.place(part.path)) from error


def _open(storage: LedgerStorage, stream: pa.NativeFile, part: Part, where: str) -> tuple[pa.NativeFile | None, pq.ParquetFile]:
    footer = read_footer(stream)
    other = _difference(footer, part)
    if other is not None:
        raise _corrupt(storage, part, where, other)
    groups = part.groups if isinstance(part, CompactedPart) else part.entries
    metadata = footer.metadata()
    found = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    if found != groups or metadata.num_rows != (sum(groups) if isinstance(part, CompactedPart) else part.rows):
        raise _corrupt(storage, part, where, f"its entries have {found} rows instead of {groups}")
    source = stream if footer.whole is None else pa.BufferReader(footer.whole)
    end = footer.file_bytes - len(footer.tail)
    sums = read_sums(metadata, end)
    if sums is None:
        return source, pq.ParquetFile(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
    return None, pq.ParquetFile(pa.PythonFile(CheckedInput(source, sums, end), mode="r"), metadata=metadata, pre_buffer=False)


def _difference(footer: Footer, part: Part) -> str | None:
    """Return how the length of the file or the CRC of its footer differs from those of the part. None: neither differs."""
    length = part.file_bytes if isinstance(part, CompactedPart) else part.bytes
    if footer.file_bytes != length:
        return f"it has {footer.file_bytes} bytes instead of {length}"
    if footer.crc != part.crc:
        return f"the CRC of its footer is {footer.crc:08x} instead of {part.crc:08x}"
    return None


def _corrupt(storage: LedgerStorage, part: Part, where: str, what: str) -> CorruptPart:
    place = f" ({where})" if where else ""
    return CorruptPart(
        f"The part {part.path} in {storage.uri}{place} does not match its registration: {what}.",
        advice="Restore the file from a copy; `txnsegment verify` lists all damaged parts. No row was dropped silently.",
    )


def _missing(storage: LedgerStorage, part: Part, where: str) -> CorruptPart:
    error = _corrupt(storage, part, where, "the file is missing")
    error.advice = (
        "If this read was planned longer ago than the cluster's grace period, compaction or retention has replaced the file since: "
        f"load again. Otherwise: {error.advice}"
    )
    return error


def _ordered(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns in the schema's order and without the file's metadata."""
    names = batch.schema.names
    if names == schema.names:
        return batch.replace_schema_metadata(None)
    if not len(schema):
        return batch.select([])
    return pa.RecordBatch.from_arrays([batch.column(names.index(name)) for name in schema.names], schema=schema)
