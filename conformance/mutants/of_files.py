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
        "manifest-checksum-unchecked",
        "8.5",
        "A registration's manifest has the length and CRC-32 that the registration keeps.",
        ("metadata.log:ledger", "if registration.manifest_crc is not None:", "if False:"),
        tests=("tests/protocol/test_manifests.py",),
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
        ("metadata.routing:_hashes", "digests >> np.uint32(16)", "digests & np.uint32(0xFFFF)"),
        tests=("tests/face/test_routing.py",),
    ),
    mutant(
        "segments-leave-a-gap",
        "8.13",
        "Active segments tile 0000-ffff without a gap.",
        ("metadata.names:even_ranges", "HashRange(a, b - 1)", "HashRange(a, b - 2)"),
    ),
    mutant(
        "null-fields-are-written",
        "8.15",
        "Null fields are left out of records.",
        ("metadata.json_records:JsonRecord.to_bytes", "exclude_none=True", "exclude_none=False"),
        tests=("tests/protocol/test_records.py",),
    ),
    mutant(
        "times-pass-through-a-float",
        "8.15, time in the wrong unit",
        "Instants are written digit by digit from integers, never through a float.",
        ("metadata.records:_to_seconds", "Decimal(nanos).scaleb(-9)", "Decimal(nanos / 1e9)"),
        tests=("tests/protocol/test_records.py",),
    ),
    mutant(
        "last-entry-lost-in-the-split",
        "8.5, 8.9",
        "A piece that is cut by size is cut whole: every entry of it is in a task.",
        ("spark_txn_source.plan:_split", "yield one.narrowed(first, one.last)", "yield one.narrowed(first, one.last - 1)"),
    ),
)
