"""Faults of owners: opening, registering, checking, deciding, aborting (protocol.md section 5)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_OPENING = "metadata.rules.transitions:opening"
_END = "metadata.rules.transitions:end"
_REGISTER = "metadata.write.coordinator:Coordinator._register"
_BEGIN = "metadata.write.coordinator:Coordinator._begin"
_DECIDE = "metadata.write.coordinator:Coordinator._decide"
_COMMIT = "spark_txn_sink.commit:commit"

MUTANTS = (
    mutant(
        "header-cas-ignores-the-version",
        "A6, 8.1",
        "A header is decided by CAS: of a commit and an abort at once exactly one wins.",
        ("metadata.log.ending:end", "expect=record, ", ""),
    ),
    mutant(
        "terminal-is-not-terminal",
        "8.1",
        "A header that is COMMITTED or ABORTED never changes again.",
        (_END, "if decision in HEADER_TRANSITIONS[header.state]:", "if decision is not header.state:"),
    ),
    mutant(
        "ending-twice-is-an-error",
        "8.2",
        "Ending a transaction again the same way succeeds.",
        (_END, "if header.state is not decision or", "if header.state is not State.OPEN or"),
    ),
    mutant(
        "late-commit-takes-the-next",
        "A1, 8.3",
        "An owner that wakes late decides its own header, never the one that its application has opened since.",
        (
            _DECIDE,
            "found = decide(self.cluster.store, lambda view: view.get(key))",
            "app = Application.of(self.cluster.store.view().get(paths.application(work.app, work.app_topic)))\n"
            "            found = self.cluster.store.view().get(paths.header(app.current.txn_id))",
        ),
    ),
    mutant(
        "txn-ids-used-twice",
        "A1, 8.3",
        "Blocks of transaction ids are taken by CAS: no id is used twice.",
        ("metadata.write.txn_ids:TxnIds._take", "expect=ABSENT if record is None else record", "expect=None"),
        kind="wide",
    ),
    mutant(
        "abort-predecessor",
        "model abort-predecessor, 8.8",
        "An OPEN predecessor is aborted before a new attempt opens.",
        (_OPENING, "return Opening.ABORT_PREDECESSOR, app", "return Opening.OPEN, app"),
    ),
    mutant(
        "application-without-cas",
        "A6, 8.8",
        "A new attempt takes the application record by CAS: of two drivers one wins.",
        (_BEGIN, "expect=ABSENT if record is None else record", "expect=None"),
    ),
    mutant(
        "replay-commits-again",
        "A16, 8.8",
        "A version that is committed already is skipped.",
        (
            _OPENING,
            "if claim.version > app.last_committed:\n        return Opening.OPEN, app",
            "if claim.version >= app.last_committed:\n        return Opening.OPEN, app",
        ),
    ),
    mutant(
        "low-version-is-dropped",
        "A20",
        "A version at or below the last one, but of another query, is an error: its rows would be lost without a word.",
        ("metadata.rules.transitions:_same", "return claim.by == by or", "return True or"),
    ),
    mutant(
        "failed-batch-is-skipped",
        "A17, 8.8",
        "Only a COMMITTED predecessor raises lastCommitted: a version that was aborted is written again.",
        (_OPENING, "if predecessor.state is State.COMMITTED:", "if predecessor.state is not State.OPEN:"),
    ),
    mutant(
        "empty-batch-fences-nobody",
        "A34",
        "An empty batch moves lastCommitted by the same CAS, so that a zombie cannot commit its version.",
        ("metadata.write.coordinator:Coordinator._commit_empty", "if work.random and record is None:", "if True:"),
    ),
    mutant(
        "late-abort-ends-the-successor",
        "A36",
        "A late abort ends only a header of its own attempt.",
        ("metadata.rules.transitions:may_abort", " and header.attempt == claim.attempt", ""),
    ),
    mutant(
        "abort-deletes-files",
        "A18, 8.5",
        "An abort after an unknown commit deletes no file: they may be live.",
        (
            "spark_txn_sink.commit:abort",
            "_coordinator(client, topic).abort_attempt(",
            "[client.cluster.storage.delete(part.path) for m in staged for _, part in m.parts]\n"
            "    _coordinator(client, topic).abort_attempt(",
        ),
        kind="wide",
    ),
    mutant(
        "lost-reply-is-success",
        "5, 8.5",
        "A lost reply to the deciding CAS is answered by reading, not taken for a success.",
        (_DECIDE, "if ended is not None:", "if (ended := ended or opened.header) is not None:"),
    ),
    mutant(
        "one-registration",
        "model one-registration, A25, 8.9",
        "One record covers all segments of a transaction: no prefix of the log holds half of one.",
        (
            _REGISTER,
            "body = registration.to_bytes()\n    if",
            "for name in list(segments)[:-1]:\n"
            "        only = registration.model_copy(update={'segments': {name: segments.pop(name)}})\n"
            "        self.cluster.store.append(paths.LOG, only.to_bytes())\n"
            "    registration = registration.model_copy(update={'segments': segments})\n"
            "    body = registration.to_bytes()\n    if",
        ),
        ("metadata.rules.transitions:resolve", " and header.commit == number", ""),
    ),
    mutant(
        "atomic-append",
        "model atomic-append, 8.7, sequence as counter then record",
        "Number and record of a registration come into being in one step: whoever sees n+1 sees n.",
        (
            _REGISTER,
            "record = self.cluster.store.append(paths.LOG, body)",
            "taken = self.cluster.store.append(paths.Prefix('/taken/number', ''), body).number\n"
            "        record = self.cluster.store.put(paths.LOG.key(taken), body, expect=ABSENT)",
        ),
        (
            _REGISTER,
            "            taken = self.cluster.store.append(paths.Prefix('/taken/number', ''), body).number\n        record =",
            "            taken = self.cluster.store.append(paths.Prefix('/taken/number', ''), body).number\n            record =",
        ),
    ),
    mutant(
        "named-by-header",
        "model named-by-header, A26",
        "Only the registration that the deciding CAS names counts: a second one, after a lost reply, is void.",
        ("metadata.rules.transitions:resolve", " and header.commit == number", ""),
    ),
    mutant(
        "seal-check",
        "model seal-check, 8.12",
        "The owner looks for a seal below its registration before it decides.",
        ("metadata.write.coordinator:Coordinator._commit", "if sealed:", "if False:"),
    ),
    mutant(
        "seal-above-refuses",
        "A24, 8.12",
        "Who registered before a seal commits: only a seal below the registration closes its segment to it.",
        (
            "metadata.write.coordinator:Coordinator._sealed_below",
            "if sealed is not None and sealed < entry.number:",
            "if sealed is not None:",
        ),
    ),
    mutant(
        "seal-of-an-old-layout",
        "A35, 8.13",
        "A seal that was made from a layout that is gone is void.",
        ("metadata.rules.transitions:seal_counts", "return layout.epoch == seal.epoch and not any(", "return not any("),
        (
            "metadata.rules.transitions:unfinished",
            " and layout is not None and layout.epoch == seal.epoch",
            " and layout is not None",
        ),
    ),
    mutant(
        "both-seals-of-one-layout",
        "A35, 8.13",
        "Of two seals made from one layout the lower one counts.",
        ("metadata.rules.transitions:seal_counts", "n < number and s.topic", "n > number and s.topic"),
    ),
    mutant(
        "children-overlap",
        "8.13",
        "The children of a split tile their parent's range.",
        ("metadata.rules.transitions:child_ranges", "Range(start=middle + 1, end=one.end)", "Range(start=middle, end=one.end)"),
        tests=("tests/metadata/write/test_splits.py::test_a_segment_is_halved_and_joined_again",),
    ),
    mutant(
        "children-before-parents",
        "8.13",
        "What was staged for a segment comes before what was staged for its children, so that each key's rows keep their order.",
        ("metadata.write.rerouting:rerouted", "segment_name(item[0]).segment_id)", "-segment_name(item[0]).segment_id)"),
        tests=("tests/spark_txn_sink/test_key_order.py::test_rows_of_a_key_keep_their_order_over_any_splits_and_merges",),
    ),
    mutant(
        "layouts-before-seals",
        "seals looked up after the layout, 8.12",
        "Seals are looked up in the log first, then in the layout: a seal leaves the log only after the layout shows it.",
        (
            "metadata.write.coordinator:Coordinator._sealed_below",
            "listing = self.log.list(view, then=[paths.topic(t) for t in topics])",
            "also = view.get_many([paths.topic(t) for t in topics])\n        listing = self.log.list(view)",
        ),
        (
            "metadata.write.coordinator:Coordinator._sealed_below",
            "zip(topics, listing.also, strict=True)",
            "zip(topics, also, strict=True)",
        ),
    ),
    mutant(
        "timeout-in-the-wrong-unit",
        "A12, time in the wrong unit",
        "A timeout is given in milliseconds and kept as nanoseconds.",
        (_BEGIN, "Nanos(work.timeout_ms * 1_000_000)", "Nanos(work.timeout_ms * 1_000)"),
    ),
    mutant(
        "allowance-in-seconds",
        "A12, time in the wrong unit",
        "The allowance of deadlines is in milliseconds, as they are.",
        ("metadata.rules.transitions:expired", "+ allowance_ms", "+ allowance_ms // 1000"),
    ),
    mutant(
        "deadline-index-in-seconds",
        "A12, 8.15, time in the wrong unit",
        "Headers are indexed by their deadline in milliseconds.",
        ("metadata.records.records:Header.indexes", "pad20(self.deadline_ms)", "pad20(self.deadline_ms // 1000)"),
    ),
    mutant(
        "old-parts-are-committed",
        "5, 8.5",
        "Parts older than half the orphan age are refused: the orphan sweep may take them.",
        ("metadata.write.coordinator:Coordinator._open", "refuse_old(work, view.now_ms(), self.cluster.settings)", "pass"),
    ),
    mutant(
        "files-are-not-looked-at",
        "5, 8.5",
        "A commit names no file that is gone: a clock that leapt and came back may have let a sweep take it.",
        ("metadata.write.coordinator:Coordinator._commit", "refuse_missing(self.cluster, work.app, work.parts)", "pass"),
        tests=("tests/metadata/write/test_parts_gone.py",),
    ),
    mutant(
        "rows-behind-a-volume",
        "5, 8.5",
        "A commit names no file in a root without a mark: its volume may have gone, and would hide the file when it is back.",
        ("metadata.write.write_set:refuse_missing", "if cluster.id is not None and mark is None:", "if False:"),
        tests=("tests/metadata/write/test_parts_gone.py::test_rows_that_were_staged_without_their_volume_are_not_committed",),
    ),
    mutant(
        "lengths-are-not-looked-at",
        "5, 8.5",
        "A commit names no file that is cut short.",
        ("metadata.write.write_set:refuse_missing", "if info is None or info[0] != part.bytes", "if info is None"),
        tests=("tests/metadata/write/test_parts_gone.py::test_a_file_that_is_cut_short_is_not_committed",),
    ),
    mutant(
        "who-slept-is-told-of-a-deletion",
        "8.12",
        "Who meets a seal that left its layout long ago is told that its parts are too old, not that its topic was deleted.",
        (
            "metadata.write.coordinator:Coordinator._routed_on",
            "refuse_old(work, time_ms(self.cluster.store), self.cluster.settings)",
            "pass",
        ),
        ("metadata.write.coordinator:Coordinator._sealed_below", "refuse_old(work, view.now_ms(), self.cluster.settings)", "pass"),
        tests=(
            "tests/metadata/maintenance/test_trimming.py::test_who_slept_until_a_segment_had_left_the_layout_is_told_that_its_rows_are_too_old",
        ),
    ),
    mutant(
        "failed-attempts-count",
        "staged parts of a failed attempt counted, 8.4",
        "A commit takes the parts that the accepted attempts report, never what lies in a folder.",
        (
            _COMMIT,
            "return _coordinator(client, topic).commit(",
            "for segment, part in [(s, p) for s, found in parts.items() for p in found]:\n"
            "        folder, name = part.path.rsplit('/', 2)[0], part.path.rsplit('/', 1)[1]\n"
            "        for file in client.cluster.storage.list(folder):\n"
            "            if file.path.endswith('/' + name) and file.path != part.path:\n"
            "                parts[segment].append(dataclasses.replace(part, path=file.path))\n"
            "    return _coordinator(client, topic).commit(",
        ),
    ),
)
