"""Faults in real metadata stores (protocol.md section 3). Faults of any store, as wrappers: `conformance.store.faults`."""

from __future__ import annotations

from conformance.mutants.planting import mutant

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
        "no-sync-before-reading",
        "the sync before acting on absence left out, A30, 3",
        "A view's first reads see everything that was acknowledged before it, on whichever server.",
        ("metadata.store.zookeeper:ZooKeeperView._fly", "if self._synced:", "if True:"),
        tests=("tests/store/test_ensemble.py::test_a_view_on_a_server_that_is_behind_sees_what_was_acknowledged_before",),
    ),
)
