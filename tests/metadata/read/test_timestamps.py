"""A batch up to a publish time waits for undecided transactions or raises an error, so its rows are final. Two adjoining batches
return each row once (protocol.md section 6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.simulator.store.faults import Crashed, Fate
from metadata.client.client import Client, client
from metadata.common.errors import BadVersion, OffsetOutOfRange, TxnConflict, TxnSegmentError
from metadata.log import ending
from metadata.read.reading import LogSelection, Reading
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.names import topic_name
from metadata.records.records import Header, Nanos, Registration, SegmentWrite, State
from metadata.rules import timestamps
from metadata.rules.timestamps import Above, OpenTransaction, OpenTransactions
from metadata.store.contract import ABSENT
from spark_txn_source import plan
from spark_txn_source.options import ReadOptions
from tests.support.bench import At, Bench, T, U


def test_the_publish_time_of_a_trimmed_row_is_the_latest_over_all_segments() -> None:
    """The clock was ahead at registration 1, so its publish time is later than those of the registrations after it. After
    registration 1 is trimmed, registration 3 must stay in the same range of timestamps.
    """

    def seen(*segments: list[tuple[int, int]]) -> list[tuple[int, int]]:
        views = [SimpleNamespace(published=lambda after, through, found=found: found) for found in segments]
        return list(Reading.published(SimpleNamespace(segments=views, _whole=lambda: ()), 0, 9))

    assert seen([(1, 500), (2, 200)], [(2, 200), (3, 200)]) == [(1, 500), (2, 200), (3, 200)]
    trimmed = seen([(2, 500)], [(2, 200), (3, 200)])
    assert trimmed == [(2, 500), (3, 200)]
    assert timestamps.start(trimmed, 251, 3) < 3


# --- the rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("above", "closed", "end"),
    [
        ([], False, (9, False)),
        ([], True, (9, True)),
        ([Above(11, 100, False)], True, (9, False)),
        ([Above(11, 101, False)], False, (9, False)),
        ([Above(11, 101, False)], True, (9, True)),
        ([Above(11, 101, False), Above(12, 101, True)], False, (9, True)),
        ([Above(11, 101, False), Above(12, 100, True), Above(13, 200, True)], True, (9, False)),
        ([Above(11, 101, False), Above(12, 100, False), Above(13, 200, True)], True, (9, False)),
        ([Above(11, 101, True), Above(12, 100, True)], False, (9, True)),
    ],
)
def test_an_end_is_final_once_no_earlier_row_can_still_come(above: list[Above], closed: bool, end: tuple[int, bool]) -> None:
    assert timestamps.end([(3, 90), (9, 100)], 100, 9, above, closed=closed) == end
    assert timestamps.end([(3, 90), (9, 101)], 100, 9, above, closed=closed) == (8, True), (
        "a later decided registration alone closes the timestamp"
    )


def test_a_timestamp_closes_beyond_the_clock_allowance() -> None:
    def seen(now_ms: int, *created: int) -> OpenTransactions:
        return OpenTransactions(now_ms, tuple(OpenTransaction(f"0_{n}", n, n + 100, "o") for n in created), 10)

    assert not seen(110).closed(100), "a clock that is behind by the allowance may still show 100"
    assert seen(111).closed(100)
    assert not seen(120, 110).closed(100), "the clock of the opener may have been ahead by the allowance"
    assert seen(120, 111).closed(100)
    assert [t.created_ms for t in seen(120, 90, 111).holding(100)] == [90]
    assert (seen(100).passes_in(100), seen(111).passes_in(100), seen(500).passes_in(100)) == (11, 0, 0)


# --- batches over a store -------------------------------------------------------------------------------------------


def batch(mine: Client, *, end: int | None = None, start: int | None = None, topics: str = T, timeout: int | None = 0) -> set[int]:
    """Return the log numbers of the registrations that a batch reads. With a timeout of 0 the batch does not wait."""
    given = {"serviceUrl": "memory://t", "topics": topics}
    given |= {} if end is None else {"endingTimestamp": str(end)}
    given |= {} if start is None else {"startingTimestamp": str(start)}
    given |= {} if timeout is None else {"timestampTimeoutMs": str(timeout)}
    (found,) = plan.read_batch(mine, ReadOptions.parse(given, streaming=False))
    return {ledger.id for segment in found.reading.segments for ledger in found.left(segment)}


def test_a_transaction_that_was_published_before_the_end_is_waited_for() -> None:
    """A transaction is OPEN while a batch reads up to time T. Formerly the transaction's row was neither in this batch nor in the
    adjoining batch from T+1. Now the batch up to T waits or raises an error (issue 13, item 4).
    """
    bench, seen = Bench(), []
    reader = client(bench.party().cluster)

    def others_read() -> None:
        now = bench.clock.now
        bench.clock.now += 500
        with pytest.raises(
            OffsetOutOfRange, match=r"not final for .*/t: registrations \d+ are not decided and transactions 0_0 of o"
        ):
            batch(reader, end=now)
        seen.append(now)

    writer = bench.party(_before(HEADER, others_read, 2))
    number = writer.coordinator.commit(bench.work()).number
    (now,) = seen
    assert batch(reader, end=now) == {number}
    assert batch(reader, start=now + 1) == set()


def _before(what: str, meanwhile: Callable[[], object], count: int = 1) -> Callable[[str, str], Fate]:
    """Return a gate that calls `meanwhile` before the count-th store call whose name starts with `what`."""
    left = [count]

    def gate(kind: str, name: str) -> Fate:
        if f"{kind} {name}".startswith(what):
            left[0] -= 1
            if not left[0]:
                meanwhile()
        return Fate.GO

    return gate


HEADER = "write Put /txn/id/"
"""The start of a store call that writes a header. A commit's first such call creates the header, the second such call decides the
transaction.
"""


@pytest.mark.parametrize("dies", [False, True])
def test_a_batch_in_the_middle_of_a_commit_is_final_or_an_error(dies: bool) -> None:
    """Batches with four different end times are read in the middle of a commit: in round k at its store call k, after the clock has
    advanced. Each batch raises OffsetOutOfRange, or returns the rows that it also returns when it is read again after the commit.
    `dies`: the committing process dies before this call.
    """
    answered = refused = 0
    for k in range(100):
        bench, seen = Bench(), {}
        reader = client(bench.party().cluster)
        bench.party().coordinator.commit(bench.work(1))

        def others_read(bench: Bench = bench, reader: Client = reader, seen: dict[int, set[int]] = seen) -> None:
            began = bench.clock.now
            bench.clock.now += 150
            for end in (began - 1, began, began + 40, began + 300):
                try:
                    seen[end] = batch(reader, end=end)
                except OffsetOutOfRange:
                    nonlocal refused
                    refused += 1

        gate = At(k, fate=Fate.CRASH_BEFORE if dies else Fate.GO, meanwhile=others_read)
        bench.clock.now += 200
        try:
            bench.party(gate).coordinator.commit(bench.work(2))
        except (Crashed, TxnSegmentError):
            assert dies
        bench.late()
        bench.party().coordinator.commit(bench.work(3))
        answered += len(seen)
        assert seen == {end: batch(reader, end=end) for end in seen}
        for end in seen:
            assert batch(reader, end=end) | batch(reader, start=end + 1) == batch(reader)
            assert not batch(reader, end=end) & batch(reader, start=end + 1)
        if not gate.hit:
            break
    assert answered
    assert refused


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_batch_beside_a_running_transaction_is_final_or_an_error(done: int) -> None:
    """A transaction opens, takes a publish time, registers and decides. `done`: the number of these steps that precede the batch.
    The other steps run at one store call of the batch. The batch raises OffsetOutOfRange, or returns the same rows when it is
    repeated later.
    """
    answered = 0
    for k in range(100):
        bench = Bench()
        writer = Writer(bench, client(bench.party().cluster), 0, T, aborts=False, timeout_ms=1_000)
        for _ in range(done):
            writer.step()
        end = bench.clock.now
        bench.clock.now += 150

        def rest(writer: Writer = writer) -> None:
            for _ in range(4 - done):
                writer.step()

        gate = At(k, meanwhile=rest)
        reader = client(bench.party(gate).cluster)
        try:
            found = batch(reader, end=end)
        except OffsetOutOfRange:
            found = None
        if not gate.hit:
            break
        bench.late()
        bench.party().coordinator.commit(bench.work())
        answered += found is not None
        assert found in (None, batch(reader, end=end)), gate.hit
    assert answered


def test_a_batch_waits_for_the_decision() -> None:
    bench = Bench()
    reader = client(bench.party().cluster)
    writer = client(bench.party().cluster)
    txn_id, record, _ = _opened(writer, bench.clock.now, 1_000)
    registered = _register(writer, txn_id, bench.clock.now)
    now = bench.clock.now
    slept = []

    def decide_at_last(kind: str, what: str) -> Fate:
        slept.append(bench.clock.now)
        if len(slept) == 3:
            ending.end(writer.cluster.store, record, State.COMMITTED, now_ms=bench.clock.now, commit=registered)
        return Fate.GO

    bench.clock.pause = decide_at_last
    assert batch(reader, end=now, timeout=None) == {registered}
    assert bench.clock.now <= now + bench.settings.deadline_allowance_ms + 100, "the batch waited longer than it must"


def test_a_batch_aborts_transactions_past_their_deadline() -> None:
    bench = Bench()
    reader, writer = client(bench.party().cluster), client(bench.party().cluster)
    txn_id, _, _ = _opened(writer, bench.clock.now, 1_000)
    now = bench.clock.now
    assert batch(reader, end=now, timeout=None) == set()
    assert bench.headers()[txn_id] is State.ABORTED
    assert bench.clock.now <= now + 1_000 + bench.settings.deadline_allowance_ms + 100


def test_an_end_in_the_future_is_an_error_at_once() -> None:
    bench = Bench()
    reader = client(bench.party().cluster)
    bench.party().coordinator.commit(bench.work())
    before = bench.clock.now
    for timeout, ahead in ((0, 1), (1_000, 1_000), (None, 3_600_000)):
        with pytest.raises(OffsetOutOfRange, match=r"is not final for .*: the store's time is .*timestampTimeoutMs"):
            batch(reader, end=before + ahead, timeout=timeout)
    assert bench.clock.now == before
    assert batch(reader, end=before + 200, timeout=1_000), "the batch waits for a timestamp in the near future"
    assert bench.clock.now > before + 200


def test_an_end_below_a_later_row_needs_no_read_of_open_transactions() -> None:
    bench, gate = Bench(), At(-1, kinds=("index",))
    reader = client(bench.party(gate).cluster)
    bench.party().coordinator.commit(bench.work(1))
    now = bench.clock.now
    bench.clock.now += 1
    bench.party().coordinator.commit(bench.work(2))
    assert len(batch(reader, end=now)) == 1
    assert gate.steps == 0


def test_an_open_transaction_of_another_topic_holds_the_end_only_while_it_may_write() -> None:
    bench = Bench()
    reader, writer = client(bench.party().cluster), client(bench.party().cluster)
    txn_id, record, _ = _opened(writer, bench.clock.now, 1_000)
    now = bench.clock.now
    bench.clock.now += 500
    with pytest.raises(OffsetOutOfRange, match=f"transactions {txn_id} of w .*are open"):
        batch(reader, end=now)
    assert batch(reader, end=now - 101) == set(), "the transaction opened later, by more than clocks may differ"
    ending.end(writer.cluster.store, record, State.ABORTED, now_ms=bench.clock.now)
    assert batch(reader, end=now) == set()


def test_uncommitted_batches_promise_nothing_and_do_not_wait() -> None:
    bench = Bench()
    reader = client(bench.party().cluster)
    given = {"serviceUrl": "memory://t", "topic": T, "isolationLevel": "read_uncommitted", "endingTimestamp": str(bench.clock.now)}
    (found,) = plan.read_batch(reader, ReadOptions.parse(given, streaming=False))
    assert (found.start, found.end) == (0, 0)


def test_a_publish_time_is_never_before_its_transaction_was_opened() -> None:
    """The clock is set back after the transaction was opened. The publish time is then the time of the opening."""
    bench = Bench()
    opened = bench.clock.now

    def back() -> None:
        bench.clock.now -= 50

    number = bench.party(_before(HEADER, back)).coordinator.commit(bench.work()).number
    assert number is not None
    reading = client(bench.party().cluster).buffer.read(LogSelection((T,)))
    assert [ms for n, ms in reading.published(0, number) if n == number] == [opened]


# --- any schedule ---------------------------------------------------------------------------------------------------

ALLOWANCE, TIMEOUT = 10, 60
SHORT = Settings(deadline_allowance_ms=ALLOWANCE, txn_timeout_ms=TIMEOUT, max_txn_timeout_ms=TIMEOUT)


def _opened(writer: Client, created_ms: int, timeout_ms: int) -> tuple[str, object, Header]:
    txn_id = writer.coordinator.ids.next()
    header = Header(state=State.OPEN, timeout=Nanos(timeout_ms * 1_000_000), created_at=Nanos(created_ms * 1_000_000), owner="w")
    record = writer.cluster.store.put(paths.header(txn_id), header.to_bytes(), expect=ABSENT, indexes=header.indexes())
    return txn_id, record, header


def _register(writer: Client, txn_id: str, publish_ms: int, topic: str = T) -> int:
    (segment, *_) = writer.topics.get(topic_name(topic)).segments()
    body = Registration(txn=txn_id, publish_ms=publish_ms, segments={segment: SegmentWrite(parts=(), rows=0, bytes=0, entries=0)})
    return writer.cluster.store.append(paths.LOG, body.to_bytes()).number


@dataclass
class Writer:
    """A writer that opens a transaction, takes its publish time, registers it and decides it. Each call of `step` does the next of
    these four. The writer's clock is off by `skew` ms.
    """

    bench: Bench
    mine: Client
    skew: int
    topic: str
    aborts: bool
    timeout_ms: int = TIMEOUT
    state: list[object] = field(default_factory=list)

    def step(self) -> None:
        now = self.bench.clock.now + self.skew
        match self.state:
            case []:
                self.state = [*_opened(self.mine, now, self.timeout_ms)]
            case [txn_id, record, Header() as header]:
                self.state = [txn_id, record, max(now, header.created_ms)]
            case [str(txn_id), record, int(publish_ms)]:
                self.state = [record, _register(self.mine, txn_id, publish_ms, self.topic)]
            case [record, number]:
                decision, commit = (State.ABORTED, None) if self.aborts else (State.COMMITTED, number)
                try:
                    ending.end(self.mine.cluster.store, record, decision, now_ms=now, commit=commit)
                except (TxnConflict, BadVersion):  # a reader or the deadline ended the transaction first
                    assert self.bench.headers()
                self.state = []


MOVES = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 2)),
    st.tuples(st.just("tick"), st.integers(1, 15)),
    st.tuples(st.just("read"), st.integers(-25, -8)),
)
WRITERS = st.lists(
    st.tuples(st.integers(-ALLOWANCE // 2, ALLOWANCE // 2), st.sampled_from([T, U]), st.booleans()), min_size=3, max_size=3
)


@settings(max_examples=60)
@given(WRITERS, st.integers(-ALLOWANCE // 2, ALLOWANCE // 2), st.lists(MOVES, min_size=20, max_size=50))
def test_adjoining_batches_over_any_schedule_give_each_row_once(
    who: list[tuple[int, str, bool]], skew: int, moves: list[tuple[str, int]]
) -> None:
    bench = Bench(SHORT)
    reader, writer, both = client(bench.party().cluster), client(bench.party().cluster), f"{T},{U}"
    writers = [Writer(bench, writer, off, topic, aborts) for off, topic, aborts in who]
    seen: dict[tuple[str, int], set[int]] = {}

    def read(topics: str, end: int) -> None:
        bench.clock.now += skew  # the reader's clock is off by `skew` ms
        try:
            found = batch(reader, end=end, topics=topics)
        except OffsetOutOfRange:
            return
        finally:
            bench.clock.now -= skew
        assert seen.setdefault((topics, end), found) == found

    for what, how in moves:
        if what == "step":
            writers[how].step()
        elif what == "tick":
            bench.clock.now += how
        else:
            for topics in (T, both):
                read(topics, bench.clock.now + how)
    bench.late()
    bench.party().coordinator.commit(bench.work(timeout_ms=TIMEOUT))
    for (topics, end), found in seen.items():
        assert batch(reader, end=end, topics=topics) == found, "the same rows later"
        before = max((one for t, one in seen if t == topics and one < end), default=end - 7)
        adjoining = batch(reader, start=before + 1, end=end, topics=topics)
        assert seen.get((topics, before), batch(reader, end=before, topics=topics)) | adjoining == found
        assert not batch(reader, end=before, topics=topics) & adjoining
