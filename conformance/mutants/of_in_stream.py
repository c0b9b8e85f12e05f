"""Faults of the older model: transaction logs, markers, transaction buffers, the system property (docs/in_stream.md)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="instream")
_RULES = "metadata.instream.rules"
_TXN = "metadata.instream.txn_rules"
_END = "metadata.instream.end:Ending"
_OWNER = "metadata.instream.coordinator:InStreamCoordinator"
_BUFFER = "metadata.instream.buffer:InStreamBuffer"

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
        (f"{_END}.finish", "self._mark_topics(txn)\n", "\n"),
        (f"{_END}.finish", "state=final, at_ms=now_ms))", "state=final, at_ms=now_ms))\n    self._mark_topics(txn)"),
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
        (f"{_OWNER}.append", "self.topics.expect_transactions(parts) if txn is not None else ", ""),
        (
            f"{_OWNER}.append",
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
        "time-out-by-the-decided",
        "in-stream log, 8.2",
        "After its deadline a transaction is aborted if it is OPEN, and only then.",
        (f"{_END}.resolve_topic", "if txn is None or txn.state in FINAL", ""),
    ),
)
