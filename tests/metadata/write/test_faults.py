"""Every store call of a commit, a sweep and a read fails in every way. Afterwards each version is committed exactly once, no
transaction stays OPEN past its deadline, and readers see only whole transactions.
"""

from __future__ import annotations

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.common.clock import Clock
from metadata.common.errors import Fenced, OutcomeUnknown, TxnConflict, TxnSegmentError, Unavailable, VersionConflict
from metadata.records.names import topic_name
from metadata.records.records import State
from tests.support.bench import At, Bench, T, U

FATES = [fate for fate in Fate if fate not in (Fate.GO, Fate.LATE)]


def _storage_fate(fate: Fate, gate: At) -> None:
    """Restrict the gate to calls of the metadata store, unless the fate is a crash. At calls for files only crashes are
    simulated.
    """
    if fate not in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER):
        gate.kinds = ("write", "get", "keys", "index")


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name)
@pytest.mark.parametrize("predecessor", [False, True], ids=["first", "after-a-crashed-attempt"])
def test_a_commit_interrupted_at_every_step_is_atomic(fate: Fate, predecessor: bool) -> None:
    k = 0
    while True:
        bench = Bench()
        if predecessor:
            with pytest.raises(Crashed):  # the earlier attempt crashes before its deciding CAS
                bench.party(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1))
        gate = At(k, fate)
        _storage_fate(fate, gate)
        work = bench.work(1)
        told = ""
        try:
            bench.party(gate).coordinator.commit(work)
            told = "committed"
        except (Crashed, TxnSegmentError) as error:
            told = type(error).__name__
        before = bench.read()
        assert len(before) in (0, 3), gate.hit
        if told == "committed":
            assert bench.committed(1), gate.hit
        again = bench.party().coordinator.commit(bench.work(1))
        assert again.skipped == (len(before) == 3), gate.hit
        twin = bench.party().coordinator.commit(bench.work(1))
        assert twin.skipped
        assert len(bench.read()) == 3
        bench.party().coordinator.commit(bench.work(2))
        bench.finish()
        assert len(bench.read()) == 6
        if not gate.hit:
            return
        k += 1


def _prepared() -> Bench:
    """Return a bench on which every step of a sweep has work. It has committed, aborted and crashed transactions, a duplicate
    registration, an old header and a seal.
    """
    bench = Bench()
    bench.party().coordinator.commit(bench.work(1))
    bench.old()
    bench.party().coordinator.commit(bench.work(2))
    with pytest.raises(Crashed):
        bench.party(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1, app="dead"))
    bench.party(At(2, Fate.LOSE_REPLY, kinds=("write",))).coordinator.commit(bench.work(3))
    bench.late()
    return bench


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name)
def test_a_sweep_interrupted_at_every_step_does_no_harm(fate: Fate) -> None:
    k = 0
    while True:
        bench = _prepared()
        gate = At(k, fate)
        _storage_fate(fate, gate)
        try:
            bench.party(gate).sweeper.sweep()
        except (Crashed, TxnSegmentError):
            assert gate.hit
        assert len(bench.read()) == 9, gate.hit
        bench.finish()
        if not gate.hit:
            return
        k += 1


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.UNAVAILABLE, Fate.SESSION_LOST], ids=lambda fate: fate.name)
def test_a_read_interrupted_at_every_step_does_no_harm(fate: Fate) -> None:
    k = 0
    while True:
        bench = _prepared()
        gate = At(k, fate)
        _storage_fate(fate, gate)
        try:
            rows = bench.read(bench.party(gate))
            assert len(rows) == 9, gate.hit
        except (Crashed, TxnSegmentError):
            assert gate.hit
        bench.finish()
        if not gate.hit:
            return
        k += 1


# --- one operation is interrupted at every step by another whole operation ------------------------------------------


def _retention(bench: Bench) -> None:
    """Sweep until nothing is left to time out, settle, fold or expire."""
    bench.late()
    bench.party().sweeper.sweep()
    bench.old()
    sweeper = bench.party().sweeper
    sweeper.sweep()
    sweeper.sweep()


INTERRUPTIONS = {
    "successor": lambda bench: bench.party().coordinator.commit(bench.work(1)),
    "empty-successor": lambda bench: bench.party().coordinator.commit(bench.work(1, topics=())),
    "other": lambda bench: bench.party().coordinator.commit(bench.work(1, app="other")),
    "share": lambda bench: bench.party().sweeper.share(),
    "sweep": lambda bench: bench.party().sweeper.sweep(),
    "retention": _retention,
    "reader": lambda bench: bench.read(),
    "late-reader": lambda bench: (bench.late(), bench.read()),
    "successor-and-retention": lambda bench: (bench.party().coordinator.commit(bench.work(1)), _retention(bench)),
}


@pytest.mark.parametrize("name", INTERRUPTIONS)
@pytest.mark.parametrize("empty", [False, True], ids=["rows", "empty"])
def test_a_zombie_that_wakes_after_other_work_commits_at_most_once(name: str, empty: bool) -> None:
    """At every step of a commit the driver is suspended while another process does the work `name`. The driver then resumes, and
    its version is committed at most once. Guards against failures A1, A4, A10, A27 and A34 (protocol.md section 9).
    """
    k = 0
    while True:
        bench = Bench()
        gate = At(k, meanwhile=lambda bench=bench: INTERRUPTIONS[name](bench))
        work = bench.work(1, topics=() if empty else (T, U))
        try:
            told = bench.party(gate).coordinator.commit(work)
            assert bench.committed(1), gate.hit
            assert not told.txn_id or told.skipped or bench.decided(1) == told.txn_id
        except TxnConflict:  # the driver's own transaction must not be committed in this case
            assert bench.decided(1) != _txn_of(bench, work.claim.attempt), gate.hit
        except OutcomeUnknown:
            assert "retention" in name, gate.hit
        bench.party().coordinator.commit(bench.work(1))
        bench.finish()
        if not gate.hit:
            return
        k += 1


def _txn_of(bench: Bench, attempt: str) -> str | None:
    return bench.opened(attempt)


@pytest.mark.parametrize("name", ["successor", "sweep", "retention", "successor-and-retention", "other"])
def test_a_reader_suspended_during_other_work_reads_a_consistent_state(name: str) -> None:
    """At every step of a read the reader is suspended, while another process does the work `name`: it commits, or sweeps, or both.
    The read still returns all committed rows. Guards against failures A10 and A27 to A29 (protocol.md section 9).
    """
    k = 0
    while True:
        bench = _prepared()
        gate = At(k, meanwhile=lambda bench=bench: _version_of(bench, name))
        party = bench.party(gate)
        assert len(bench.read(party)) >= 9, gate.hit
        bench.read(party)
        bench.finish()
        if not gate.hit:
            return
        k += 1


def _version_of(bench: Bench, name: str) -> None:
    """Do the work `name` on a bench whose application `app` is at version 3. So a later attempt writes version 4, not 1."""
    if "successor" in name:
        bench.party().coordinator.commit(bench.work(4))
        if name.endswith("retention"):
            _retention(bench)
        return
    INTERRUPTIONS[name](bench)


@pytest.mark.parametrize("name", ["sweep", "retention", "reader", "successor", "successor-and-retention"])
def test_a_sweeper_suspended_during_other_work_does_no_harm(name: str) -> None:
    k = 0
    while True:
        bench = _prepared()
        gate = At(k, meanwhile=lambda bench=bench: _version_of(bench, name))
        bench.party(gate).sweeper.sweep()
        assert len(bench.read()) >= 9, gate.hit
        bench.finish()
        if not gate.hit:
            return
        k += 1


# --- aborting ---------------------------------------------------------------------------------------------------


def test_abort_after_commit_is_an_error_and_changes_nothing() -> None:
    bench = Bench()
    done = bench.party().coordinator.commit(bench.work(1))
    assert done.txn_id is not None
    with pytest.raises(TxnConflict):
        bench.party().coordinator.abort(done.txn_id)
    assert bench.headers() == {done.txn_id: State.COMMITTED}
    bench.finish()


def test_spark_aborts_after_a_commit_that_raised_at_every_step() -> None:
    """Spark aborts after a commit that raised an error. Whatever the outcome of the commit was, the abort ends the
    transaction only if it is still OPEN, and it deletes no file. Guards against failure A18 (protocol.md section 9).
    """
    for fate in (Fate.CRASH_AFTER, Fate.LOSE_REPLY, Fate.UNAVAILABLE, Fate.SPLIT_CRASH):
        k = 0
        while True:
            bench = Bench()
            gate = At(k, fate, kinds=("write",))
            work = bench.work(1)
            try:
                bench.party(gate).coordinator.commit(work)
            except (Crashed, TxnSegmentError):
                assert gate.hit
            was = bench.committed(1)
            bench.party().coordinator.abort_attempt("app", "", work.claim)
            assert bench.committed(1) == was
            assert len(bench.read()) == (3 if was else 0)
            bench.party().coordinator.commit(bench.work(1))
            bench.finish()
            if not gate.hit:
                break
            k += 1


def test_a_late_abort_never_ends_the_later_attempt() -> None:
    """The abort of attempt one comes late: in each run at another step of the commit of attempt two. Attempt two always commits.
    Guards against failure A36 (protocol.md section 9).
    """
    k = 0
    while True:
        bench = Bench()
        first = bench.work(1)
        with pytest.raises(Crashed):
            bench.party(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(first)
        gate = At(k, meanwhile=lambda bench=bench, first=first: bench.party().coordinator.abort_attempt("app", "", first.claim))
        assert not bench.party(gate).coordinator.commit(bench.work(1)).skipped
        assert len(bench.read()) == 3
        bench.finish()
        if not gate.hit:
            return
        k += 1


def test_a_low_version_is_refused_not_dropped() -> None:
    """A query with a new checkpoint uses the application of an older query, or a version is lower than the last committed version.
    In both cases the commit raises VersionConflict. A repetition of the last version is skipped. Guards against failure A20
    (protocol.md section 9).
    """
    bench = Bench()
    party = bench.party()
    party.coordinator.commit(bench.work(5))
    with pytest.raises(VersionConflict):
        party.coordinator.commit(bench.work(5, by="another query"))
    with pytest.raises(VersionConflict):
        party.coordinator.commit(bench.work(4))
    assert party.coordinator.commit(bench.work(5)).skipped
    batch = bench.work(5, by=None)
    assert party.coordinator.commit(batch).skipped  # a batch write with the same txnVersion is skipped as well


def test_a_driver_that_is_behind_is_fenced() -> None:
    bench = Bench()
    with pytest.raises(Crashed):
        bench.party(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(6))
    with pytest.raises(Fenced):
        bench.party().coordinator.commit(bench.work(5))
    bench.finish()


# --- faults found by the simulator and by review ------------------------------------------------------------------


def test_an_empty_batch_is_not_taken_for_the_commit_of_the_attempt_it_fenced() -> None:
    """Formerly an empty batch aborted an earlier attempt and committed its version, but the application's `current` still
    named the aborted transaction. After the header of this transaction had expired, its owner resumed, and reported the committed
    version as its own commit. Guards against failure A34 (found by the simulator with seed 10173, at commit 511b272).
    """
    bench = Bench()
    decisions: list[str] = []

    def gate(kind: str, what: str) -> Fate:
        if kind == "write" and what.startswith("Put /txn/id/"):
            decisions.append(what)
            if len(decisions) == 2:
                bench.party().coordinator.commit(bench.work(1, topics=()))
                bench.clock.now += bench.settings.header_retention_ms + 1
                for _ in range(3):
                    bench.party().sweeper.sweep()
                assert not bench.headers()
        return Fate.GO

    with pytest.raises(OutcomeUnknown):
        bench.party(gate).coordinator.commit(bench.work(1))
    assert bench.read() == []
    assert bench.party().coordinator.commit(bench.work(1)).skipped


def test_an_empty_write_of_a_random_application_leaves_no_record() -> None:
    bench = Bench()
    bench.party().coordinator.commit(bench.work(1, app="random", topics=(), by=None, random=True))
    assert not bench.kept("/txn/app/")


def test_a_random_application_expires_with_its_header() -> None:
    bench = Bench()
    bench.party().coordinator.commit(bench.work(1, app="random", by=None, random=True))
    assert bench.kept("/txn/app/")
    bench.finish()
    assert not bench.kept("/txn/app/")


def test_a_seal_without_its_layout_is_finished_by_the_next_writer() -> None:
    """A deletion crashed after the seal and before the layout. The next writer is refused, and finishes the deletion."""
    bench = Bench()
    work = bench.work(1)
    with pytest.raises(Crashed):
        bench.party(At(0, Fate.CRASH_AFTER, kinds=("write",))).topics.delete(topic_name(U))
    with pytest.raises(TxnSegmentError):
        bench.party().coordinator.commit(work)
    assert bench.party().topics.find(topic_name(U)) is None


def test_a_deletion_spares_a_topic_recreated_under_the_same_name() -> None:
    k = 0
    while True:
        bench = Bench()
        made: list[object] = []

        def again(bench: Bench = bench, made: list[object] = made) -> None:
            other = bench.party().topics
            if other.find(topic_name(U)) is None:
                made.append(other.create(topic_name(U)))

        gate = At(k, meanwhile=again)
        bench.party(gate).topics.delete(topic_name(U))
        assert (bench.party().topics.find(topic_name(U)) is not None) == bool(made), gate.hit
        if not gate.hit:
            return
        k += 1


def test_an_undecided_registration_stays_in_the_log_of_a_recreated_topic() -> None:
    bench = Bench()
    work = bench.work(1, topics=(U,))

    def delete_and_sweep() -> None:
        other = bench.party()
        other.topics.delete(topic_name(U))
        other.topics.create(topic_name(U))
        other.coordinator.commit(bench.work(1, app="other", topics=(T,)))
        other.sweeper.sweep()

    gate = At(4, meanwhile=delete_and_sweep, kinds=("write",))  # write 4 is the deciding CAS
    bench.party(gate).coordinator.commit(work)
    assert "Put /txn/id" in gate.hit
    bench.check()


def test_listings_of_two_threads_do_not_disturb_each_other() -> None:
    """A thread that lists an older state of the log must not remove entries from the newer listing of another thread."""
    bench = Bench()
    coordinator = bench.party().coordinator
    coordinator.commit(bench.work(1))
    party = bench.party()

    def older_listing_ends() -> None:
        """Finish the listing of the other thread, which read the keys before version 2 was committed."""
        party.buffer.log.list(_Older(party.cluster.store.view(), 1))

    coordinator.commit(bench.work(2))
    view = party.cluster.store.view()
    party.buffer.log.list(view)
    coordinator.commit(bench.work(3))
    seen = party.buffer.log.list(_Then(view, older_listing_ends))
    assert [e.number for e in seen.entries] == [1, 2, 3]
    assert seen.end == 3


class _Older:
    """A view that lists only the first `count` keys, as an older view would."""

    def __init__(self, view: object, count: int) -> None:
        self._view, self._count = view, count

    def keys(self, within: object) -> object:
        return self._view.keys(within)[: self._count]  # type: ignore[attr-defined]

    def get_many(self, keys: object) -> object:
        return self._view.get_many(keys)  # type: ignore[attr-defined]


class _Then:
    """A view that calls `then` after each read of values."""

    def __init__(self, view: object, then: object) -> None:
        self._view, self._then = view, then

    def keys(self, within: object) -> object:
        return self._view.keys(within)  # type: ignore[attr-defined]

    def get_many(self, keys: object) -> object:
        found = self._view.get_many(keys)  # type: ignore[attr-defined]
        self._then()  # type: ignore[operator]
        return found


class _Silent(Clock):
    """The store's clock. Its k-th answer, counted from 0, is the error Unavailable. A ZooKeeper store asks a server for the time,
    so it can raise this error.
    """

    def __init__(self, inner: Clock, k: int) -> None:
        self._inner, self._k, self.asked = inner, k, 0

    def now_ms(self) -> int:
        self.asked += 1
        if self.asked == self._k + 1:
            raise Unavailable("The store was asked for its time and did not answer.")
        return self._inner.now_ms()

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


def test_a_store_without_a_clock_leaves_no_transaction_open() -> None:
    """The store's clock fails, so a commit raises an error. The commit then has not taken effect, and leaves no OPEN transaction,
    for which readers would wait until its deadline. Guards against failure A4 (protocol.md section 9).
    """
    for k in range(100):
        bench = Bench()
        party, work = bench.party(), bench.work(1)
        clock = _Silent(bench.clock, k)
        party.cluster.store.clock = clock  # type: ignore[attr-defined]
        try:
            party.coordinator.commit(work)
        except Unavailable:
            assert State.OPEN not in bench.headers().values(), k
            assert not bench.read()
        bench.finish()
        if clock.asked <= k:
            break
    assert 3 < k < 99
