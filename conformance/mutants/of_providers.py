"""Faults where programs meet topics of both kinds: what one transaction spans, order, acks (docs/in_stream.md, Providers)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_TESTS = "tests/txnsegment/test_persistent.py"
_NAMES = "tests/txnsegment/test_persistent_names.py"
_DAMAGE = "tests/metadata/instream/test_instream_damage.py"

MUTANTS = (
    mutant(
        "transaction-spans-both-kinds",
        "8.5",
        "One transaction never spans both kinds of topics: it could not be atomic.",
        ("txnsegment.transaction:Transaction._check_kind", "of([*self._touched, *names])", "of(names)"),
        tests=(f"{_TESTS}::test_one_transaction_never_spans_both_kinds",),
    ),
    mutant(
        "woken-after-looking",
        "8.16",
        "A consumer that sleeps is woken by an append to the log of its persistent topic.",
        ("txnsegment.feeds:_FollowingOne.__init__", "wake.set)", "wake.is_set)"),
        tests=(f"{_TESTS}::test_a_commit_wakes_an_idle_consumer",),
    ),
    mutant(
        "damaged-snapshots-are-believed",
        "8.4",
        "A transaction buffer's snapshot that lies in a file is compared with its checksum: a bit would show aborted rows.",
        ("metadata.instream.snapshots:_load", "zlib.crc32(part) != crc", "not part"),
        tests=(f"{_DAMAGE}::test_not_one_bit_of_a_snapshot_goes_unnoticed",),
    ),
    mutant(
        "transaction-logs-are-topics-of-everybody",
        "8.1",
        "Nobody but a coordinator writes to its transaction log.",
        ("metadata.records.names:persistent_name", "found.groups()[:2] == SYSTEM", "False"),
        tests=(f"{_NAMES}::test_nobody_writes_to_a_transaction_log",),
    ),
)
