"""Faults of readers: what counts, the cut, plans of batches and streams (protocol.md section 6)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_RESOLVE = "metadata.rules.transitions:resolve"
_READ = "metadata.read.transaction_buffer:TransactionBuffer._read"
_SEGMENT = "metadata.read.transaction_buffer:TransactionBuffer._segment"
_BY_HEADERS = "metadata.read.transaction_buffer:TransactionBuffer._by_headers"
_VERDICTS = "metadata.read.transaction_buffer:TransactionBuffer.verdicts"
_LIVE = "metadata.read.segment_view:StoredSegment._live"
_LIMITED = "metadata.rules.transitions:limited"
_FOLLOWING = "spark_txn_source.following:Following"

_MOVED_BACK = "tests/spark_txn_source/test_streams_of_moved_subscriptions.py"
_TIMES = "tests/metadata/read/test_timestamps.py"
_FIRST = "tests/spark_txn_source/test_first_micro_batch.py"

_LOG = "    listing = self.log.list(view, again=self.still_open)\n    verdicts = self.verdicts(view, listing)\n"

MUTANTS = (
    mutant(
        "aborted-rows-are-read",
        "A2, 8.4",
        "A registration of an ABORTED transaction is filtered.",
        (_RESOLVE, "header.state is State.COMMITTED and header.commit == number", "header.commit in (None, number)"),
    ),
    mutant(
        "gone-means-committed",
        "A11, 8.4",
        "A registration whose header is gone, and that nobody settled, is filtered.",
        (_RESOLVE, "Verdict.FILTERED if reread else", "Verdict.VISIBLE if reread else"),
    ),
    mutant(
        "aborted-tail-holds-readers",
        "A8, 8.9",
        "An aborted transaction is decided: it holds nobody up.",
        (_RESOLVE, "if header.state is State.OPEN:", "if header.state is not State.COMMITTED:"),
    ),
    mutant(
        "reread-gone",
        "model reread-gone, A27",
        "A gone header counts only if the registration is still not settled when read again.",
        (_BY_HEADERS, "gone.append(entry)", "found[entry.number] = Verdict.FILTERED"),
    ),
    mutant(
        "reader-passes-an-expired-header",
        "8.10, A4",
        "A reader that meets a transaction past its deadline aborts it.",
        (_BY_HEADERS, "if transitions.expired(", "if False and transitions.expired("),
    ),
    mutant(
        "undecided-is-remembered",
        "8.5",
        "Only decided verdicts are remembered.",
        (_VERDICTS, " if v is not Verdict.UNDECIDED", ""),
    ),
    mutant(
        "verdicts-are-kept-for-ever",
        "A13, 8.14",
        "What a process remembers of the log goes with the log's records.",
        (_VERDICTS, "del self._final[number]", "continue"),
    ),
    mutant(
        "log-before-snapshot",
        "model log-before-snapshot, A28",
        "The live log is read before watermarks and snapshots.",
        (_READ, _LOG, ""),
        (_READ, "    seals = listing.seals()", f"{_LOG}    seals = listing.seals()"),
    ),
    mutant(
        "layouts-before-log",
        "A32",
        "Topics and layouts are read after the log: rows of a new topic are passed over else.",
        (_READ, _LOG, ""),
        (_READ, "    marks = view.get_many(", f"{_LOG}    marks = view.get_many("),
    ),
    mutant(
        "cut-from-the-watermark",
        "A29, 8.9",
        "A watermark that is read after the log does not move the cut beyond the listed log.",
        (
            _READ,
            "transitions.cut((e.number for e in undecided), listing.end)",
            "transitions.cut((e.number for e in undecided), "
            "max([listing.end, *(Watermark.of(m).ledger_id for m in marks if m is not None)]))",
        ),
    ),
    mutant(
        "cut-at-the-end",
        "6, 8.6",
        "Nothing undecided lies at or below the cut.",
        ("metadata.rules.transitions:cut", "min(first - 1, end_of_log)", "end_of_log"),
    ),
    mutant(
        "open-rows-of-a-new-segment",
        "A21, 8.4",
        "Without a watermark, too, only decided registrations are visible.",
        (_SEGMENT, "and e.number in shown", "and (e.number in shown or watermark is None)"),
    ),
    mutant(
        "unreadable-snapshot-is-empty",
        "A3, 8.5",
        "A snapshot that cannot be read is an error, not an empty one.",
        (
            _SEGMENT,
            "head = None if watermark is None or watermark.snapshot is None else self.head(watermark.snapshot)",
            "try:\n        head = None if watermark is None or watermark.snapshot is None else self.head(watermark.snapshot)\n"
            "    except Exception:\n        head = None",
        ),
    ),
    mutant(
        "missing-offset-is-zero",
        "A3",
        "An offset that is not ours is an error, not the beginning.",
        ("spark_txn_source.offsets:offset_of", 'found.get("log"),', 'found.get("log", 0),'),
        tests=("tests/spark/test_streams.py::test_offsets_that_are_not_ours",),
    ),
    mutant(
        "plain-writes-move-nothing",
        "A9",
        "Plain writes move maxReadPosition as transactions do.",
        (
            "metadata.read.segment_view:StoredSegment.last",
            "for n, r in self.live if n <= cut]",
            "for n, r in self.live if n <= cut and r.txn is not None]",
        ),
    ),
    mutant(
        "last-ledger-is-left-out",
        "A19, 8.5",
        "A read to a number includes that number.",
        (_LIVE, "if after < number <= through)", "if after < number < through)"),
    ),
    mutant(
        "first-ledger-is-read-twice",
        "A19, 8.5",
        "A read after a number does not include that number.",
        (_LIVE, "if after < number <= through)", "if after <= number <= through)"),
    ),
    mutant(
        "older-listing-wins",
        "8.5",
        "A thread with an older listing takes no entries out of another's.",
        (
            "metadata.log.live_log:LiveLog.list",
            "known = {",
            "self._entries = {n: e for n, e in self._entries.items() if n in numbers}; known = {",
        ),
        (
            "metadata.log.live_log:LiveLog.list",
            "[known[n] for n in numbers if n in known]",
            "[self._entries[n] for n in numbers if n in self._entries]",
        ),
        ("metadata.log.live_log:LiveLog.list", "in known.values():", "in [known[n] for n in wanted if n in known]:"),
        tests=("tests/metadata/log/test_live_log.py",),
    ),
    mutant(
        "replay-with-fewer-rows",
        "A31, 8.5",
        "Planning a given end needs a cut that reaches it: never fewer rows than the first time.",
        ("metadata.read.transaction_buffer:TransactionBuffer.read_to", "if reading.cut >= end:", "if True:"),
    ),
    mutant(
        "replay-with-a-newer-cut",
        "a replay that plans with a newer cut, A31",
        "A micro-batch that is planned again ends where it ended.",
        ("spark_txn_source.stream:StreamReader.partitions", "self._columns, begin, last,", "self._columns, begin, reading.cut,"),
    ),
    mutant(
        "first-batch-starts-anew",
        "6, 8.5",
        "A first micro-batch that is planned again starts where it was planned from.",
        ("spark_txn_source.offsets:StreamOffset.start_of_batch", "if start.is_initial and self.began is not None", "if False"),
        tests=(_FIRST,),
    ),
    mutant(
        "later-ends-keep-the-first-start",
        "6, 8.5",
        "Only the end of the first micro-batch records where it began: offsets do not grow.",
        (
            "spark_txn_source.stream:StreamReader.latestOffset",
            "began = offset.began if given.is_initial else None",
            "began = offset.began",
        ),
        tests=(_FIRST,),
    ),
    mutant(
        "idle-stream-forgets-its-first-start",
        "6, 8.9",
        "An idle stream answers its start, to the letter: a difference is a micro-batch for nothing.",
        (
            "spark_txn_source.offsets:offset_of",
            "(is_initial, began,",
            "(is_initial, began if is_initial else None,",
        ),
        tests=(_FIRST,),
    ),
    mutant(
        "trims-of-a-new-initial-offset",
        "6, A19",
        "What retention had taken before a first batch was planned is what the end of the batch says.",
        (
            "spark_txn_source.stream:StreamReader.partitions",
            "check_trims(reading, begin, last, to.trims,",
            "check_trims(reading, begin, last, offset.trims,",
        ),
        tests=(_FIRST,),
    ),
    mutant(
        "latest-trimmed-time-of-the-first-segment",
        "6, 8.5",
        "Of what was trimmed the latest publish time counts, also where another segment still has its last number.",
        ("metadata.read.reading:Reading.published", "max(publish_ms for _, publish_ms in found)", "next(found)[1]"),
        tests=(_TIMES,),
    ),
    mutant(
        "timestamps-among-trimmed-rows",
        "6",
        "A range by timestamps of which all rows were trimmed is DataLoss, and not empty.",
        ("spark_txn_source.persistent:among_trimmed", "max(end, start + 1) if isinstance(given, AtTime) else end", "end"),
        tests=("tests/conformance/surface/test_surface.py", "tests/spark_txn_source/test_persistent_source.py"),
    ),
    mutant(
        "stream-acknowledges-what-was-moved-back",
        "6, 7",
        "A stream acknowledges no row of a subscription that was moved back, or made again: it does not give it out again.",
        ("spark_txn_source.cursors:StreamCursors.commit", "if acked_to:", "if False:"),
        tests=(_MOVED_BACK,),
    ),
    mutant(
        "what-was-acknowledged-beyond-the-start",
        "6, 7",
        "Nor a row that was acknowledged beyond its start when it began, and is left again.",
        ("spark_txn_source.cursors:StreamCursors.commit", "to.acked_beyond(one.name) for", "NONE for"),
        tests=(_MOVED_BACK,),
    ),
    mutant(
        "open-transactions-hold-no-timestamp",
        "6, 8.5",
        "An end by publish time is not final while a transaction is open that may have taken a publish time before it.",
        ("metadata.rules.timestamps:OpenTransactions.closed", " and not self.holding(timestamp_ms)", ""),
        tests=(_TIMES,),
    ),
    mutant(
        "timestamp-without-allowance",
        "6, 8.5",
        "Clocks differ: an end by publish time is final once no clock shows it any more.",
        ("metadata.rules.timestamps:OpenTransactions.passes_in", " + self.allowance_ms + 1", ""),
        tests=(_TIMES,),
    ),
    mutant(
        "open-since-without-allowance",
        "6, 8.5",
        "Clocks differ: a transaction that was opened a little after a timestamp may publish before it.",
        ("metadata.rules.timestamps:OpenTransactions.holding", " + self.allowance_ms", ""),
        tests=(_TIMES,),
    ),
    mutant(
        "undecided-rows-hold-no-timestamp",
        "6, 8.5",
        "An end by publish time is not final while a registration above the cut may belong before it.",
        ("metadata.rules.timestamps:end", "if one.publish_ms <= timestamp_ms:", "if False:"),
        tests=(_TIMES,),
    ),
    mutant(
        "log-before-open-transactions",
        "6, 8.5",
        "The open transactions are read before the log: one that has ended meanwhile is in the log.",
        (
            "spark_txn_source.timestamps:_final",
            "seen = opened()\n        reading = read()",
            "reading = read()\n        seen = opened()",
        ),
        tests=(_TIMES,),
    ),
    mutant(
        "published-before-it-was-opened",
        "6",
        "A publish time is never before the creation of its transaction.",
        ("metadata.write.coordinator:Coordinator._register", "max(self._now(), opened.header.created_ms)", "self._now()"),
        tests=(_TIMES,),
    ),
    mutant(
        "limit-splits-a-transaction",
        "limits that split a transaction, 8.9",
        "Limits lower the end of a micro-batch to whole transactions.",
        (
            "spark_txn_source.plan:tasks",
            "done=done.get(segment.name, NONE))))",
            "done=done.get(segment.name, NONE)))[: options.max_rows_per_trigger])",
        ),
    ),
    mutant(
        "limit-stops-the-stream",
        "8.9",
        "A micro-batch has at least one transaction, whatever the limits: a stream always moves.",
        (_LIMITED, "if over and last is not None:\n            return last", "if over:\n            return weight.number - 1"),
    ),
    mutant(
        "end-at-seal",
        "model end-at-seal, 8.13",
        "A micro-batch ends at a seal of its segments.",
        (_LIMITED, "end = min([end, *seals])", "end = min([end])"),
    ),
    mutant(
        "stale-watch-is-trusted",
        "a stale watch trusted, 8.16",
        "Watches are wake-ups: without one, too, the log is listed before a reading is called the newest.",
        (f"{_FOLLOWING}.read", " or not self._is_newest(self._reading)", ""),
    ),
    mutant(
        "undecided-waits-for-a-wake-up",
        "8.16, a stale watch trusted",
        "A reading with something undecided is never the newest: nobody has to tell of the decision.",
        (f"{_FOLLOWING}._is_newest", "    if reading.undecided:\n        return False\n", ""),
        kind="wide",
    ),
    mutant(
        "published-before-it-began",
        "6, Timestamps",
        "In a persistent topic, too, no publish time is before its transaction began.",
        ("metadata.instream.steps:TransactionSteps.append", "0 if txn is None else self.log.began_ms(self._least(txn))", "0"),
        tests=("tests/spark_txn_source/test_persistent_timestamps.py::test_no_publish_time_is_before_its_transaction_began",),
    ),
)
