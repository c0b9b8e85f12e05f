"""Faults of the older model: transaction logs, markers, transaction buffers, the system property (docs/in_stream.md)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="instream")
_RULES = "metadata.instream.rules"
_TXN = "metadata.instream.txn_rules"
_END = "metadata.instream.end:Ending"
_STEPS = "metadata.instream.steps:TransactionSteps"
_BUFFER = "metadata.instream.buffer:InStreamBuffer"
_ACKS = "metadata.instream.ack_rules"

MUTANTS = (
    mutant(
        "marker-missing-on-one-participant",
        "in-stream end, 8.5, 8.9",
        "Every participant gets its marker before the final state is logged.",
        (f"{_END}._mark_topics", "for name in names\n", "for name in names[:1]\n"),
    ),
    mutant(
        "committed-before-the-markers",
        "in-stream end, 8.9",
        "COMMITTED is logged once every participant has its marker: who dies between would leave rows that nobody ever shows.",
        (f"{_END}.finish", "self._mark_topics(txn, again=again)\n", "\n"),
        (f"{_END}.finish", "log.append_again(entry)", "log.append_again(entry)\n    self._mark_topics(txn, again=again)"),
    ),
    mutant(
        "data-after-its-marker-counts",
        "in-stream zombies, 8.4",
        "Data of a transaction after its own marker is void: nobody would ever end it.",
        (f"{_RULES}:_data", "if has_ended(state, txn):", "if False:"),
    ),
    mutant(
        "zombie-below-the-low-water-mark",
        "in-stream zombies, 8.6",
        "Data of a transaction that has ended everywhere is void, though its marker here is forgotten.",
        (f"{_RULES}:has_ended", "return txn in state.ended or", "return txn in state.ended or False and"),
    ),
    mutant(
        "aborted-rows-are-shown",
        "in-stream reading, 8.4",
        "Rows of a transaction that an abort marker has ended are filtered.",
        (f"{_RULES}:_end", "if wrote is not None and not committed:", "if False:"),
    ),
    mutant(
        "low-water-mark-one-too-high",
        "in-stream end, 8.5",
        "The low-water mark lies below the first transaction that is not final.",
        (f"{_RULES}:low_water", "default=last + 1) - 1", "default=last)"),
    ),
    mutant(
        "second-transition-wins",
        "in-stream log, 8.1, A6",
        "The first allowed transition in the order of the log takes effect, whoever appended it.",
        (
            f"{_TXN}:_status",
            "if txn is None or entry.state not in TRANSITIONS[txn.state]:",
            "if txn is None or (entry.state not in TRANSITIONS[txn.state] and entry.state is not TxnState.COMMITTING):",
        ),
    ),
    mutant(
        "version-token-not-checked",
        "in-stream log, 8.8",
        "COMMITTING is void if the application has committed this version by another transaction.",
        (f"{_TXN}:_status", "if entry.state is TxnState.COMMITTING and overtaken(state, txn):", "if False:"),
    ),
    mutant(
        "register-after-the-decision",
        "in-stream log, 8.9",
        "Participants are registered while the transaction is OPEN.",
        (f"{_TXN}:_add", "if txn is None or txn.state is not TxnState.OPEN:", "if txn is None:"),
    ),
    mutant(
        "max-read-at-the-first-ongoing",
        "in-stream reading, 8.6",
        "maxReadPosition lies before the first entry of the first transaction that is ongoing.",
        (f"{_RULES}:max_read", "first - 1", "first"),
    ),
    mutant(
        "property-set-late",
        "in-stream property, 8.4",
        "The system property is set before the first transactional entry is appended.",
        (f"{_STEPS}.append", "self.topics.expect_transactions(parts) if txn is not None else ", ""),
        (
            f"{_STEPS}.append",
            "return {str(name): number for name, number in zip(entries, numbers, strict=True)}",
            "self.topics.expect_transactions(parts)\n"
            "        return {str(name): number for name, number in zip(entries, numbers, strict=True)}",
        ),
    ),
    mutant(
        "property-read-before-the-list",
        "in-stream property, 8.4",
        "A reader lists the log first and reads the system property after it.",
        (
            f"{_BUFFER}._open",
            "fresh = known.log.numbers(view, known.listed)\n    topic = of_record(name, view.get(paths.topic(name)))",
            "topic = of_record(name, view.get(paths.topic(name)))\n    fresh = known.log.numbers(view, known.listed)",
        ),
    ),
    mutant(
        "second-append-of-one-id-counts",
        "in-stream lost replies, 8.5",
        "An append whose reply was lost and that is repeated counts once.",
        (f"{_RULES}:_data", "if entry_id in ids:", "if False:"),
    ),
    mutant(
        "seal-ignored",
        "in-stream seals, 8.12",
        "Everything above a topic's seal is void.",
        (f"{_RULES}:fold", "if state.sealed_at is not None:", "if False:"),
    ),
    mutant(
        "commits-over-a-seal",
        "in-stream seals, 8.12",
        "A transaction that has written above a seal is not committed: its rows would be lost without a word.",
        (f"{_STEPS}._check_seals", "self.ending.sealing(names).items()", "dict[PersistentName, bool]().items()"),
    ),
    mutant(
        "snapshot-newer-than-its-data",
        "in-stream snapshots, 8.6",
        "A snapshot is of the maxReadPosition that its state was folded to: what lies above is replayed.",
        (
            f"{_BUFFER}.snapshot",
            "base, aborted = known.base.copy(), dict(known.tip.aborted)",
            "base, aborted = known.base.copy(), dict(known.tip.aborted)\n            base.at = opened.end",
        ),
    ),
    mutant(
        "replay-from-the-wrong-entry",
        "in-stream snapshots, 8.4",
        "Replay begins with the first entry above the snapshot.",
        (f"{_BUFFER}._replay", "bisect_right(known.numbers, known.tip.at) :]", "bisect_right(known.numbers, known.tip.at + 1) :]"),
    ),
    mutant(
        "aborted-list-trimmed-early",
        "in-stream snapshots, 8.4",
        "An aborted transaction is forgotten once all its data is trimmed: its marker lies above all of it.",
        (f"{_RULES}:trimmed", "for t, number in state.aborted.items() if number <= to", "for t in state.aborted if to"),
    ),
    mutant(
        "snapshot-without-the-aborted",
        "in-stream snapshots, 8.4",
        "A snapshot lists the transactions that markers have aborted.",
        (f"{_BUFFER}.snapshot", "dict(known.tip.aborted)", "dict[str, int]()"),
    ),
    mutant(
        "trimmed-above-the-snapshot",
        "in-stream trimming, 8.5",
        "Nothing above the newest snapshot leaves the log: it is still replayed.",
        ("metadata.instream.trimming:_replayable", "layout.snapshot.at >= to", "layout.snapshot.at >= 0"),
    ),
    mutant(
        "compaction-deletes-nothing",
        "in-stream compaction, 8.14",
        "What a compaction has kept is deleted from the log.",
        ("metadata.instream.replay:Replay.compact", "return self._delete(view, covered)", "return 0"),
    ),
    mutant(
        "compaction-forgets-versions",
        "in-stream compaction, 8.8",
        "What applications have committed is kept when their transaction is forgotten.",
        (f"{_TXN}:compacted", "if not w.random or w.txn in kept", "if w.txn in kept"),
    ),
    mutant(
        "compaction-forgets-the-undecided",
        "in-stream compaction, 8.2",
        "A transaction that is not final is kept, however old.",
        (f"{_TXN}:compacted", "t.state not in FINAL or now_ms", "now_ms"),
    ),
    mutant(
        "users-set-the-property",
        "in-stream property",
        "Users may read the system property, never set or remove it.",
        ("metadata.instream.topics:_refuse_system", "if key == CONTAINS_TXN:", "if not key:"),
    ),
    mutant(
        "one-transaction-over-both-kinds",
        "in-stream kinds",
        "A transaction never spans both kinds of topics: an error before anything is written.",
        (
            "metadata.instream.coordinator:_persistent",
            "raise OptionError(",
            'return PersistentName("public", "default", "a")\n    raise OptionError(',
        ),
    ),
    mutant(
        "ack-after-the-end",
        "in-stream acks, 8.11",
        "A transaction that has ended acknowledges nothing any more.",
        (f"{_ACKS}:fold", "if entry.txn is not None and has_ended(state, entry.txn):", "if False:"),
    ),
    mutant(
        "aborted-acks-stay",
        "in-stream acks, 8.11",
        "What an aborted transaction had acknowledged is delivered again.",
        (f"{_ACKS}:fold", "committed=entry.kind is AckKind.COMMIT", "committed=True"),
    ),
    mutant(
        "cumulative-ack-over-a-claim",
        "in-stream acks, 8.11",
        "A cumulative acknowledgement does not cover what another transaction claims.",
        (
            "metadata.rules.acks:acknowledged",
            "if other != txn and (held := common(wanted, claimed)):",
            "if other != txn and not ack.cumulative and (held := common(wanted, claimed)):",
        ),
    ),
    mutant(
        "marker-missing-on-a-subscription",
        "in-stream acks, 8.11",
        "Every pending-ack log of a transaction gets its marker.",
        (f"{_END}._mark_subscriptions", "for where, record in found.items()", "for where, record in list(found.items())[1:]"),
    ),
    mutant(
        "orphan-sweep-takes-a-snapshot",
        "in-stream snapshots, 8.5",
        "The orphan sweep spares the files of a topic's newest snapshot.",
        (f"{_BUFFER}.named_files", "yield from topic.layout.snapshot.files()", "yield from ()"),
    ),
    mutant(
        "a-look-at-a-stall-is-an-entry",
        "in-stream end, 8.14",
        "Who finishes what others left gives no marker to a topic that has it, or takes none: else a stall grows with each look.",
        (f"{_END}._takes_no_marker", "return state.sealed_at is not None or has_ended(state, txn)", "return state is None"),
        tests=("tests/metadata/instream/test_instream_stalls.py",),
    ),
    mutant(
        "timed-out-too-early",
        "in-stream log, 8.10",
        "A transaction is aborted once its deadline has passed by the store's clock, with the allowance.",
        (f"{_TXN}:expired", "+ allowance_ms", ""),
    ),
    mutant(
        "a-late-abort-of-the-forgotten-fails",
        "in-stream end, A36",
        "Spark's abort of a transaction that others have ended, and forgotten, meanwhile does nothing.",
        ("metadata.instream.coordinator:InStreamCoordinator.abort_attempt", "(TxnConflict, TransactionNotFound)", "TxnConflict"),
        tests=("tests/metadata/instream/test_instream_faults.py::test_a_late_abort_sleeps_while_others_act",),
    ),
)
