"""Faults of parts, snapshots, routing and bytes: what readers believe of files, where rows go, what records look like."""

from __future__ import annotations

from conformance.mutants.planting import mutant

MUTANTS = (
    mutant(
        "part-checksum-unchecked",
        "a part's checksum not verified, 8.5",
        "A part's footer has the CRC-32 that its registration keeps.",
        ("ledgers.part_reader:_open", "if footer.crc != part.crc:", "if False:"),
        tests=("tests/ledgers/test_parts.py",),
    ),
    mutant(
        "page-checksum-unchecked",
        "a part's checksum not verified, 8.5",
        "Every page is checked against its checksum before a row of it is shown.",
        ("ledgers.part_reader:_open", "page_checksum_verification=True", "page_checksum_verification=False"),
        tests=("tests/ledgers/test_parts.py",),
    ),
    mutant(
        "snapshot-checksum-unchecked",
        "8.5",
        "A snapshot's head has the CRC-32 that stands in its name.",
        ("ledgers.snapshots:read_head", 'if path[-len(SUFFIX) - 8 :] != f"{zlib.crc32(data):08x}{SUFFIX}":', "if False:"),
        tests=("tests/ledgers/test_snapshots.py",),
    ),
    mutant(
        "found-folder-not-synced",
        "8.5",
        "A folder that another process made is synced into its parent before a file in it is published.",
        ("ledgers.local_files:LocalFiles._sync_parents", "self._disk.sync_folder(folder.parent)", "pass"),
        tests=("tests/ledgers/test_storage.py",),
    ),
    mutant(
        "database-readable-by-all",
        "3",
        "The metadata database is readable by its owner alone, whatever the umask.",
        ("metadata.store.sqlite_database:Database._make_file", "0o600", "0o644"),
        tests=("tests/metadata/store/test_file_modes.py",),
    ),
    mutant(
        "backup-readable-by-all",
        "3",
        "A backup file is readable by its owner alone, whatever the umask.",
        ("metadata.backup.backup_file:write", "0o600", "0o644"),
        tests=("tests/metadata/store/test_file_modes.py",),
    ),
    mutant(
        "manifest-checksum-unchecked",
        "8.5",
        "A registration's manifest has the length and CRC-32 that the registration keeps.",
        ("metadata.log.live_log:ledger", "if registration.manifest_crc is not None:", "if False:"),
        tests=("tests/metadata/write/test_manifests.py",),
    ),
    mutant(
        "snapshot-file-at-the-edge",
        "A19, 8.5",
        "A read opens every ledger file that overlaps its range, its edges included.",
        ("ledgers.snapshots:read_ledgers", "file.first <= through", "file.first < through"),
    ),
    mutant(
        "routing-by-the-low-bits",
        "routing by the low 16 bits, 8.13",
        "The HIGH 16 bits of a key's hash pick its segment.",
        ("metadata.topics.routing:_hashes", "digests >> np.uint32(16)", "digests & np.uint32(0xFFFF)"),
        tests=("tests/spark_txn_sink/test_routing.py",),
    ),
    mutant(
        "segments-leave-a-gap",
        "8.13",
        "Active segments tile 0000-ffff without a gap.",
        ("metadata.records.names:even_ranges", "HashRange(a, b - 1)", "HashRange(a, b - 2)"),
    ),
    mutant(
        "null-fields-are-written",
        "8.15",
        "Null fields are left out of records.",
        ("metadata.records.json_records:JsonRecord.to_bytes", "exclude_none=True", "exclude_none=False"),
        tests=("tests/metadata/records/test_records.py",),
    ),
    mutant(
        "times-pass-through-a-float",
        "8.15, time in the wrong unit",
        "Instants are written digit by digit from integers, never through a float.",
        ("metadata.records.records:_to_seconds", "Decimal(nanos).scaleb(-9)", "Decimal(nanos / 1e9)"),
        tests=("tests/metadata/records/test_records.py",),
    ),
    mutant(
        "last-entry-lost-in-the-split",
        "8.5, 8.9",
        "A piece that is cut by size is cut whole: every entry of it is in a task.",
        ("spark_txn_source.pieces:split", "yield one.narrowed(first, one.last)", "yield one.narrowed(first, one.last - 1)"),
    ),
    mutant(
        "cut-snapshot-keeps-its-rows",
        "8.14",
        "The totals of an index file say what is left of it after a trim.",
        ("ledgers.snapshot_changes:_cut", "rows=file.rows - lost[2]", "rows=file.rows"),
        tests=("tests/ledgers/test_compaction.py::test_a_trimmed_chain_lists_the_rest",),
    ),
    mutant(
        "trimmed-snapshot-keeps-its-runs",
        "8.5",
        "What is known of the rows of a compacted file goes with the ledgers that a trim takes.",
        ("ledgers.snapshot_changes:trimmed", "if run.ledger > through", "if True"),
        tests=("tests/ledgers/test_compaction.py::test_a_trimmed_chain_lists_the_rest",),
    ),
    mutant(
        "compaction-of-nothing",
        "8.14",
        "A compaction whose parts were all moved by others replaces no snapshot.",
        ("ledgers.snapshot_changes:moved", "if not count:", "if False:"),
        tests=("tests/ledgers/test_compaction.py::test_a_merge_beside_another_moves_what_is_still_there",),
    ),
    mutant(
        "compaction-leaves-out-the-last-ledgers",
        "8.14",
        "Compaction lists anew every ledger whose rows it has moved.",
        ("ledgers.compaction:_moved", "units[-1].last", "units[-1].ledger"),
        tests=("tests/ledgers/test_compaction.py::test_a_merge_that_ends_with_a_compacted_file_moves_all_of_its_ledgers",),
    ),
    mutant(
        "entries-without-a-bound",
        "8.14",
        "An entry holds no more bytes than the writer was told.",
        (
            "ledgers.part_writer:PartWriter.write",
            "self._bytes + piece.nbytes > self._entry_bytes",
            "self._bytes > self._entry_bytes",
        ),
        tests=("tests/ledgers/test_parts.py::test_an_entry_holds_no_more_bytes_than_it_may",),
    ),
    mutant(
        "page-headers-unchecked",
        "8.5",
        "On local disks each page header is checked before rows of its page are shown.",
        ("ledgers.part_reader:read_part", "headers=storage.is_local", "headers=False"),
        tests=("tests/ledgers/test_parts.py::test_a_level_encoding_that_changed_is_noticed",),
    ),
    mutant(
        "footer-longer-than-its-file",
        "8.5",
        "A footer that claims more bytes than its file has is an error of ours.",
        ("ledgers.footer:read_footer", "length > size - len(_MAGIC)", "False"),
        tests=("tests/ledgers/test_parts.py::test_a_footer_that_claims_more_than_its_file_is_refused",),
    ),
)
