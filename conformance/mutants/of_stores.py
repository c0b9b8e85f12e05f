"""Faults in real metadata stores (protocol.md section 3). Faults of any store, as wrappers: `conformance.store.faults`."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_CLOCKS = "tests/metadata/cluster/test_server_clocks.py"
_FULL = "tests/metadata/store/test_full_disk.py::"
_STATE = "metadata.store.memory:MemoryState"

MUTANTS = (
    mutant(
        "index-entry-left",
        "index entry left after replace, 3",
        "A put replaces the record's index entries.",
        (f"{_STATE}._place", "if old is not None:\n            self._unlist(old)", "if False:\n            self._unlist(old)"),
        (
            f"{_STATE}._unlist",
            "entries = self._indexes[name]\n",
            "entries = self._indexes[name]\n        if (entry, record.key) not in entries: continue\n",
        ),
        store="memory",
    ),
    mutant(
        "index-scan-by-prefix",
        "A14, 3",
        "An index scan is exact: 0_1 does not find 0_10.",
        (f"{_STATE}.scan_index", "bisect_right(entries, last, start", "bisect_right(entries, last + '~', start"),
        store="memory",
    ),
    mutant(
        "key-range-one-too-wide",
        "an index range one too wide, A14, 3",
        "A range of keys ends with its last key.",
        (
            f"{_STATE}.keys",
            "bisect_right(self._order, last, start, key=_path)",
            "bisect_right(self._order, last, start, key=_path) + 1",
        ),
        store="memory",
    ),
    mutant(
        "version-ignored",
        "version ignored, 8.1, 3",
        "A put that expects a version looks at it.",
        (f"{_STATE}._apply", "if expected is not None and", "if expected == -1 and"),
        store="memory",
    ),
    mutant(
        "number-used-again",
        "8.3, 3",
        "A number of a sequence is never used again, also after its record is deleted.",
        (f"{_STATE}._append", "number = (before or 0) + 1", "number = 1"),
        store="memory",
    ),
    mutant(
        "counter-then-record",
        "sequence as counter then record, 8.7, 3",
        "A sequence append allocates its number and creates the record in one step.",
        (
            "metadata.store.memory:MemoryStore.write",
            "with self.shared.lock:",
            "given, writes = writes, ()\n"
            "    for write in given:\n"
            "        if isinstance(write, Append):\n"
            "            with self.shared.lock:\n"
            "                numbers = self.shared.state.numbers\n"
            "                number = numbers[write.prefix] = numbers.get(write.prefix, 0) + 1\n"
            "            self.clock.sleep(0.01 * (number % 5 == 0))\n"
            "            write = Put(write.prefix.key(number), write.value, -1, write.indexes)\n"
            "        writes += (write,)\n"
            "    with self.shared.lock:",
        ),
        store="memory",
    ),
    mutant(
        "session-changes-between-reads",
        "A30, the session changed between two reads of one decision",
        "All reads of a view are of one session: SessionLost once it has ended.",
        ("metadata.store.memory:MemoryView._checked_state", "if self._store.session != self._session:", "if False:"),
        store="memory",
    ),
    mutant(
        "time-of-the-first-leader",
        "3",
        "The store's time is the leader's of now, and not what the leader said with whom the session began.",
        (
            "metadata.store.zookeeper_time:learned",
            "if known is None:",
            "measured = known and measured._replace(ms=known.now_ms(measured.at)) or measured\n    if True:",
        ),
        tests=(_CLOCKS,),
    ),
    mutant(
        "time-measured-once-a-connection",
        "3",
        "The leader's time is measured again after a while: its clock may be set.",
        ("metadata.store.zookeeper_session:Session.time", "or self.clock.monotonic() - found.at > self.time_seconds", ""),
        tests=(_CLOCKS,),
    ),
    mutant(
        "time-leaps-within-a-decision",
        "3",
        "A view has one measurement of the time: a decision does not judge by two clocks.",
        ("metadata.store.zookeeper:ZooKeeperView.now_ms", "if self._time is None:", "if True:"),
        tests=(_CLOCKS,),
    ),
    mutant(
        "time-set-back-by-a-slow-answer",
        "3",
        "A session's time does not go back because an answer took long.",
        ("metadata.store.zookeeper_time:learned", "if off <= 0 <= off + int((measured.at - began) * 1000):", "if False:"),
        tests=(f"{_CLOCKS}::test_an_answer_that_took_long_does_not_set_the_time_back",),
    ),
    mutant(
        "no-sync-before-reading",
        "the sync before acting on absence left out, A30, 3",
        "A view's first reads see everything that was acknowledged before it, on whichever server.",
        ("metadata.store.zookeeper:ZooKeeperView._fly", "if self._synced:", "if True:"),
        tests=("tests/metadata/store/test_ensemble.py::test_a_view_on_a_server_that_is_behind_sees_what_was_acknowledged_before",),
    ),
    mutant(
        "full-disk-tried-again-and-again",
        "issue 13, 23",
        "After the disk has failed in a commit the next write first makes sure that it takes one, and says what it lacks.",
        ("metadata.store.sqlite_database:Database.writing", "if self._failed:", "if False:"),
        tests=("tests/metadata/store/test_sqlite.py::TestCommitErrors",),
    ),
    mutant(
        "full-disk-cannot-be-opened",
        "issue 13, 23",
        "A cluster on a full disk can be opened: room is kept for it.",
        ("metadata.store.sqlite_database:Database._open_first", "code in OF_THE_DISK and self.reserve.give_up()", "False"),
        tests=(f"{_FULL}test_a_cluster_on_a_full_disk_is_opened_and_swept",),
    ),
    mutant(
        "full-disk-cannot-be-swept",
        "issue 13, 23",
        "A sweep that finds the disk full uses the room that is kept for it.",
        ("metadata.client.passes:_delete", "if not cluster.store.make_room():", "if True:"),
        tests=(f"{_FULL}test_a_sweeper_that_is_at_work_when_the_disk_fills_up_deletes_all_the_same",),
    ),
)
