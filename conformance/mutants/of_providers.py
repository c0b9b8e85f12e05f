"""Faults where programs meet topics of both kinds: what one transaction spans, order, acks (docs/in_stream.md, Providers)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_TESTS = "tests/txnsegment/test_persistent.py"
_NAMES = "tests/txnsegment/test_persistent_names.py"
_DAMAGE = "tests/metadata/instream/test_instream_damage.py"
_CONSUMER = "txnsegment.consumer:Consumer"

MUTANTS = (
    mutant(
        "transaction-spans-both-kinds",
        "8.5",
        "One transaction never spans both kinds of topics: it could not be atomic.",
        ("txnsegment.transaction:Transaction._check_kind", "of([*self._touched, *names])", "of(names)"),
        tests=(f"{_TESTS}::test_one_transaction_never_spans_both_kinds",),
    ),
    mutant(
        "cumulative-ack-beyond-its-log",
        "8.11",
        "A cumulative ack covers what its row's log orders: rows of other topics with lower numbers may not have been read.",
        (
            f"{_CONSUMER}.ack_cumulative",
            "for view in feed.reading.segments}",
            "for other in self._feeds for view in other.reading.segments}",
        ),
        tests=(f"{_TESTS}::test_a_consumer_reads_both_kinds_at_once",),
    ),
    mutant(
        "woken-after-looking",
        "8.16",
        "A consumer that sleeps is woken by an append to the log of its persistent topic.",
        ("txnsegment.feeds:_FollowingOne.__init__", "wake.set)", "wake.is_set)"),
        tests=(f"{_TESTS}::test_a_commit_wakes_an_idle_consumer",),
    ),
    mutant(
        "one-feed-starves-the-others",
        "8.16",
        "A consumer of several logs gives each its turn.",
        (f"{_CONSUMER}._more", "feed.reading.cut > feed.after", "feed is self._feeds[0] and feed.reading.cut > feed.after"),
        tests=(f"{_TESTS}::test_a_consumer_reads_both_kinds_at_once",),
    ),
    mutant(
        "trimmed-rows-unheard",
        "A19",
        "A subscription whose rows retention has taken from a persistent topic is told so.",
        ("metadata.instream.view:PersistentSegment.last_trimmed", "self.reading.topic.layout.trimmed_to", "None"),
        tests=(f"{_TESTS}::test_retention_takes_old_rows_but_none_that_a_subscription_needs",),
    ),
    mutant(
        "schemas-of-persistent-topics-swept-as-others",
        "8.14",
        "A sweep tells the schemas of persistent topics from those of earlier lives of topic://.",
        ("metadata.maintenance.remains:collect_remains", "if is_persistent(paths.decode(topic)):", "if is_persistent(topic):"),
        tests=(f"{_TESTS}::test_retention_takes_old_rows_but_none_that_a_subscription_needs",),
    ),
    mutant(
        "damaged-snapshots-are-believed",
        "8.4",
        "A transaction buffer's snapshot that lies in a file is compared with its checksum: a bit would show aborted rows.",
        ("metadata.instream.snapshots:_load", "zlib.crc32(part) != crc", "not part"),
        tests=(f"{_DAMAGE}::test_not_one_bit_of_a_snapshot_goes_unnoticed",),
    ),
    mutant(
        "newer-snapshots-are-believed",
        "8.4",
        "A transaction buffer's snapshot that is newer than its log is no snapshot of it.",
        ("metadata.instream.buffer:InStreamBuffer._kept", "if found.at <= end:", "if True:"),
        tests=(f"{_DAMAGE}::test_a_damaged_snapshot_is_made_anew_from_the_whole_log",),
    ),
    mutant(
        "transaction-logs-are-topics-of-everybody",
        "8.1",
        "Nobody but a coordinator writes to its transaction log.",
        ("metadata.records.names:persistent_name", "found.groups()[:2] == SYSTEM", "False"),
        tests=(f"{_NAMES}::test_nobody_writes_to_a_transaction_log",),
    ),
    mutant(
        "trims-of-others-reported",
        "A19",
        "A trim of a persistent topic reports what it took itself, not what another sweeper took meanwhile.",
        (
            "metadata.instream.trimming:trim_log",
            "going if layout.trimmed_log <= reading.trimmed_to else _of(reading, layout.trimmed_log, to)[1]",
            "going",
        ),
        tests=(f"{_NAMES}::test_a_trim_reports_what_it_took_itself",),
    ),
    mutant(
        "decided-transactions-past-their-deadline",
        "8.10",
        "The doctor tells to end what is OPEN past its deadline; what is decided and stalls at a seal is not.",
        ("txnsegment.doctor:_transactions", "if t.state is TxnState.OPEN]", "]"),
        tests=("tests/metadata/instream/test_instream_stalls.py::test_the_doctor_counts_what_is_open_alone",),
    ),
)
