"""Parts: one Parquet file each, written by one task for one segment (protocol.md section 1)."""

from ledgers.part_reader import BATCH_ROWS, EntryBatch, check_part, part_staging_id, read_part, verify_part
from ledgers.part_writer import COMPRESSIONS, ENTRY_BYTES, ENTRY_ROWS, STAGING_KEY, PartWriter, close_all, part_name

__all__ = [
    "BATCH_ROWS",
    "COMPRESSIONS",
    "ENTRY_BYTES",
    "ENTRY_ROWS",
    "STAGING_KEY",
    "EntryBatch",
    "PartWriter",
    "check_part",
    "close_all",
    "part_name",
    "part_staging_id",
    "read_part",
    "verify_part",
]
