"""Faults of the code for files and records: their checks, compacted files, routing of rows to segments, and file permissions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from conformance.mutants.planting import fault
from ledgers.compaction import Moved
from ledgers.footer import Footer
from ledgers.model import Ledger, Part
from ledgers.snapshots import SnapshotHead
from metadata.records.json_records import JsonRecord
from metadata.records.names import HashRange
from metadata.records.persistent_records import SnapshotPointer
from metadata.records.records import Registration

Real = Callable[..., Any]

_PARTS = "tests/ledgers/test_parts.py"
_COMPACTION = "tests/ledgers/test_compaction.py"
_TEXT = "tests/metadata/common/test_hostile_text.py"

# --- checksums ----------------------------------------------------------------------------------------------------


@fault(
    "a part's checksum not verified, 8.5",
    "The CRC-32 of a part's footer is compared with the one in its registration.",
    at="ledgers.part_reader:_difference",
    by=f"{_PARTS}::test_a_missing_shorter_longer_or_replaced_part_is_refused",
)
def part_checksum_unchecked(real: Real, footer: Footer, part: Part) -> Any:
    return real(footer._replace(crc=part.crc), part)


@fault(
    "8.5",
    "Each block that is read is compared with its checksum in the footer.",
    at="ledgers.block_sums:read_sums",
    by=f"{_PARTS}::test_every_changed_byte_of_a_part_is_noticed",
)
def blocks_unchecked(real: Real, metadata: Any, end: int) -> None:
    return None


@fault(
    "8.5",
    "On local disks, each page header of a part without checksums of blocks is checked before rows of the page are returned.",
    at="ledgers.part_reader:_entries",
    within="ledgers.part_reader:read_part",
    by=f"{_PARTS}::test_a_level_encoding_that_changed_is_noticed",
)
def page_headers_unchecked(real: Real, *rest: Any, headers: bool) -> Any:
    return real(*rest, headers=False)


@fault(
    "8.5",
    "The CRC-32 of a snapshot's head is compared with the one in its file name.",
    at="ledgers.snapshots:_has_its_crc",
    by="tests/ledgers/test_snapshots.py::test_every_damage_is_noticed",
)
def snapshot_checksum_unchecked(real: Real, path: str, data: bytes) -> bool:
    return True


@fault(
    "8.5",
    "The length and the CRC-32 of a manifest are compared with those in its registration.",
    at="metadata.log.live_log:ledger",
    by="tests/metadata/write/test_manifests.py::test_a_damaged_manifest_is_an_error_that_names_the_manifest",
)
def manifest_checksum_unchecked(real: Real, storage: Any, number: int, registration: Registration, segment: str) -> Any:
    return real(storage, number, registration.model_copy(update={"manifest_crc": None}), segment)


@fault(
    "8.4",
    "The checksum of a transaction buffer's snapshot file is checked. One flipped bit could show aborted rows.",
    at="metadata.instream.snapshots:_load",
    by="tests/metadata/instream/test_instream_damage.py::test_not_one_bit_of_a_snapshot_goes_unnoticed",
)
def damaged_snapshots_are_believed(real: Real, storage: Any, name: Any, found: SnapshotPointer) -> Any:
    return real(storage, name, found.model_copy(update={"crc": None, "rest_crc": None}))


# --- snapshots and compacted files --------------------------------------------------------------------------------


@fault(
    "A19, 8.5",
    "A read opens every index snapshot file that overlaps its range, including a file that overlaps only at an edge.",
    at="ledgers.snapshots:read_ledgers",
    by="seed 1",
)
def snapshot_file_at_the_edge(real: Real, storage: Any, head: SnapshotHead, after: int, through: int) -> Iterator[Ledger]:
    found: Iterator[Ledger] = real(
        storage, replace(head, files=tuple(file for file in head.files if file.first < through)), after, through
    )
    return found


@fault(
    "8.14",
    "After a trim, the totals of an index file count only the ledgers that are left.",
    at="ledgers.snapshot_changes:_totals",
    by=f"{_COMPACTION}::test_a_trimmed_chain_lists_the_rest",
)
def cut_snapshot_keeps_its_rows(real: Real, *rest: Any) -> tuple[int, int, int, int]:
    ledgers, parts, _, size = real(*rest)
    return ledgers, parts, 0, size


@fault(
    "1, 8.5",
    "The record of a compacted part states the row of the new file at which the part's rows begin.",
    at="ledgers.compaction:_moved",
    by=f"{_COMPACTION}::test_rows_positions_and_order_stay",
)
def compacted_rows_off_by_one(real: Real, outputs: Any) -> Moved | None:
    moved: Moved | None = real(outputs)
    if moved is None:
        return None
    return replace(moved, parts={place: replace(part, first_row=max(part.first_row - 1, 0)) for place, part in moved.parts.items()})


# --- statistics of parts ------------------------------------------------------------------------------------------

_STATISTICS = "tests/ledgers/test_part_statistics.py"


@fault(
    "4",
    "The bounds of a column are those of all row groups of the part.",
    at="ledgers.statistics_writer:bounds_of",
    by=f"{_STATISTICS}::test_bounds_are_those_of_all_entries",
)
def bounds_of_the_first_entry(real: Real, groups: Any, of: Any, rows: int) -> Any:
    found = list(groups)
    return real(found[:1], of, found[0].num_values + found[0].null_count)


@fault(
    "4",
    "A column with NaN has no upper bound, because Spark orders NaN above every number.",
    at="ledgers.statistics_writer:_Floats.bounds",
    by=f"{_STATISTICS}::test_nan_has_no_upper_bound_since_it_is_above_every_number",
)
def nan_lies_within_bounds(real: Real, self: Any) -> Any:
    self.nan = False
    return real(self)


@fault(
    "4",
    "The footer has no bounds of floating-point numbers, because Spark's Parquet reader would skip NaN by them.",
    at="ledgers.part_writer:with_footer_statistics",
    by=f"{_STATISTICS}::test_the_footer_has_no_bounds_of_floating_point_numbers",
)
def floats_bounded_in_the_footer(real: Real, schema: Any) -> bool:
    return True


@fault(
    "4",
    "An upper bound that is cut off is known to be, because the values lie above what is left of it.",
    at="ledgers.part_statistics:_bounds",
    by=f"{_STATISTICS}::test_no_row_lies_outside_of_the_statistics_of_its_part",
)
def cut_bounds_taken_as_whole(real: Real, *rest: Any) -> Any:
    end, bounds = real(*rest)
    return end, replace(bounds, cut=False)


@fault(
    "4",
    "A compacted file is known to be routed by a key only if all rows of it were.",
    at="ledgers.part_writer:PartWriter.unkeyed",
    by=f"{_COMPACTION}::test_a_file_of_rows_that_were_routed_in_different_ways_has_no_key",
)
def compacted_rows_have_the_first_key(real: Real, self: Any) -> None:
    return None


@fault(
    "4",
    "`verify` compares the rows of a part with its statistics.",
    at="ledgers.statistics_writer:outside",
    by=f"{_STATISTICS}::test_verify_refuses_rows_outside_of_the_statistics",
)
def statistics_unverified(real: Real, *rest: Any) -> None:
    return None


# --- routing and bytes --------------------------------------------------------------------------------------------


@fault(
    "routing by the low 16 bits, 8.13",
    "The high 16 bits of a key's hash select its segment.",
    at="metadata.topics.routing:_high_bits",
    by="tests/metadata/topics/test_routing.py::test_each_row_goes_to_the_segment_of_its_key_in_order",
)
def routing_by_the_low_bits(real: Real, digests: Any) -> Any:
    return digests & np.uint32(0xFFFF)


@fault(
    "8.13",
    "The active segments cover the range 0000-ffff without a gap.",
    at="metadata.records.names:even_ranges",
    by="script a19_no_row_is_skipped_at_the_edge",
)
def segments_leave_a_gap(real: Real, count: int) -> list[HashRange]:
    return [HashRange(found.start, found.end - 1) for found in real(count)]


@fault(
    "8.15",
    "Records omit fields that are null.",
    at="metadata.records.json_records:JsonRecord.to_bytes",
    by="tests/metadata/records/test_records.py::test_bytes",
)
def null_fields_are_written(real: Real, self: JsonRecord) -> bytes:
    nulls = [f'"{name}":null' for name, value in self.model_dump(by_alias=True).items() if value is None]
    return b"".join((real(self)[:-1], *(f",{null}".encode() for null in nulls), b"}"))


@fault(
    "8.15, time in the wrong unit",
    "Instants are formatted from integers, digit by digit, and never converted to a float.",
    at="metadata.records.records:_to_seconds",
    by="tests/metadata/records/test_records.py::test_bytes",
)
def times_pass_through_a_float(real: Real, nanos: int) -> Decimal:
    return Decimal(nanos / 1e9)


# --- files and records of unknown origin -----------------------------------------------------------------------------


@fault(
    "4, 8.5",
    "The JSON of a record is nested at most 200 levels deep.",
    at="ledgers.json_text:_check_depth",
    by="tests/metadata/records/test_hostile_records.py::test_a_hostile_record_is_a_corrupt_record_at_once",
)
def nesting_without_a_bound(real: Real, raw: bytes) -> None:
    return None


@fault(
    "4, 8.5",
    "A record whose column type would make Spark import a module is refused.",
    at="ledgers.spark_json:_check_type",
    by="tests/ledgers/test_json_text.py::test_columns_of_unknown_types_are_refused_and_run_no_code",
)
def columns_of_user_types(real: Real, found: Any) -> None:
    return None


@fault(
    "8.5",
    "Bytes that are no Avro value of the schema are refused, and never decoded to other values.",
    at="ledgers.avro.rows:Codec._same",
    within="ledgers.avro.rows:Codec.decode",
    by="tests/ledgers/test_hostile_avro.py::test_bytes_that_are_no_value_of_the_schema_are_refused_by_topic_and_row",
)
def avro_not_looked_at_twice(real: Real, self: Any, records: Any, given: Any) -> bool:
    return True


@fault(
    "8.5",
    "The content of a snapshot's head is validated even if its checksum is right.",
    at="ledgers.snapshot_checks:check_head",
    within="ledgers.snapshots:read_head",
    by="tests/ledgers/test_hostile_files.py::test_a_head_of_hostile_content_is_a_corrupt_snapshot",
)
def heads_believed(real: Real, record: Any) -> None:
    return None


@fault(
    "4",
    "The name of a new topic contains no control character and no direction mark.",
    at="metadata.records.names:check_new",
    within="metadata.topics.topics:Topics.create",
    by=f"{_TEXT}::test_a_new_topic_subscription_or_application_has_no_control_or_mark_of_direction",
)
def names_with_escapes(real: Real, name: Any) -> None:
    return None


# --- file permissions ------------------------------------------------------------------------------------------------


@fault(
    "3",
    "Only its owner can read the metadata database, whatever the umask.",
    at="metadata.store.sqlite_database:Database._make_file",
    by="tests/metadata/store/test_file_modes.py::test_the_database_and_backups_are_readable_by_their_owner_alone",
)
def database_readable_by_all(real: Real, self: Any) -> None:
    os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o644))
