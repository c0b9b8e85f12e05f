"""A batch up to a publish time waits or raises an error, so that its rows are final (docs/protocol.md, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.client.client import Client, client
from metadata.common.errors import OffsetOutOfRange, TxnSegmentError
from metadata.records.names import topic_name
from spark_txn_source import plan
from spark_txn_source.options import ReadOptions
from tests.support.bench import PERSISTENT, At, Bench

T, U = PERSISTENT


def batch(mine: Client, *, end: int | None = None, start: int | None = None, timeout: int | None = 0) -> set[tuple[str, int]]:
    """Return the topic and the id of each ledger that a batch of both topics reads. With a timeout of 0 the batch does not wait."""
    given = {"serviceUrl": "memory://t", "topics": f"{T},{U}"}
    given |= {} if end is None else {"endingTimestamp": str(end)}
    given |= {} if start is None else {"startingTimestamp": str(start)}
    given |= {} if timeout is None else {"timestampTimeoutMs": str(timeout)}
    options = ReadOptions.parse(given, streaming=False)
    ranges = plan.read_batch(mine, options)
    return {(one.log, found.id) for one in ranges for segment in one.reading.segments for found in one.left(segment)}


@pytest.mark.parametrize("dies", [False, True])
def test_a_batch_in_the_middle_of_a_commit_is_final_or_an_error(dies: bool) -> None:
    """In round k, at store call k of a commit, the clock advances, and batches with four different end times are read. Each batch
    raises OffsetOutOfRange, or returns the same rows after the commit. `dies`: the committing process dies before this call.
    """
    answered = refused = 0
    for k in range(200):
        bench, seen = Bench(topics=PERSISTENT), {}
        reader = client(bench.instream().cluster)
        bench.instream().coordinator.commit(bench.work(1))

        def others_read(bench: Bench = bench, reader: Client = reader, seen: dict[int, set[tuple[str, int]]] = seen) -> None:
            began = bench.clock.now
            bench.clock.now += 150
            for end in (began - 1, began, began + 40, began + 300):
                try:
                    seen[end] = batch(reader, end=end)
                except OffsetOutOfRange:
                    nonlocal refused
                    refused += 1

        gate = At(k, fate=Fate.CRASH_BEFORE if dies else Fate.GO, meanwhile=others_read)
        bench.clock.now += 250
        try:
            bench.instream(gate).coordinator.commit(bench.work(2))
        except (Crashed, TxnSegmentError):
            assert dies
        if not gate.hit:
            break
        bench.late()
        bench.instream().coordinator.commit(bench.work(3))
        answered += len(seen)
        assert seen == {end: batch(reader, end=end) for end in seen}, gate.hit
        for end in seen:
            assert batch(reader, end=end) | batch(reader, start=end + 1) == batch(reader)
            assert not batch(reader, end=end) & batch(reader, start=end + 1)
    assert answered
    assert refused


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_batch_beside_a_running_transaction_is_final_or_an_error(done: int) -> None:
    """A transaction begins, appends and ends. `done`: the number of these steps that precede a batch. The other steps run at one
    store call of the batch. The batch raises OffsetOutOfRange, or returns the same rows when it is repeated later.
    """
    answered = 0
    for k in range(200):
        bench = Bench(topics=PERSISTENT)
        writer = bench.instream().coordinator
        ids: list[str] = []

        def begin(bench: Bench = bench, writer=writer, ids: list[str] = ids) -> None:  # type: ignore[no-untyped-def]
            ids.append(writer.begin(topics=[T]))

        def append(bench: Bench = bench, writer=writer, ids: list[str] = ids) -> None:  # type: ignore[no-untyped-def]
            writer.append(ids[0], {T: [bench.part("a")]})

        def end(writer=writer, ids: list[str] = ids) -> None:  # type: ignore[no-untyped-def]
            writer.end(ids[0], commit=True)

        steps: Sequence[Callable[[], None]] = (begin, append, end)
        for step in steps[:done]:
            step()
        at = bench.clock.now
        bench.clock.now += 150

        def rest(steps: Sequence[Callable[[], None]] = steps) -> None:
            for step in steps[done:]:
                step()

        gate = At(k, meanwhile=rest)
        reader = client(bench.instream(gate).cluster)
        try:
            found = batch(reader, end=at)
        except OffsetOutOfRange:
            found = None
        if not gate.hit:
            break
        bench.late()
        bench.instream().coordinator.commit(bench.work())
        answered += found is not None
        assert found in (None, batch(reader, end=at)), gate.hit
    assert answered or done == 2


def test_a_batch_waits_for_an_open_transaction_until_it_has_timed_out() -> None:
    bench = Bench(topics=PERSISTENT)
    reader, writer = client(bench.instream().cluster), bench.instream().coordinator
    txn = writer.begin(topics=[T], timeout_ms=1_000)
    writer.append(txn, {T: [bench.part("a")]})
    bench.clock.now += 1
    plain = writer.append(None, {T: [bench.part("b")]})[str(T)]
    now = bench.clock.now
    bench.clock.now += 500
    with pytest.raises(OffsetOutOfRange, match=rf"not final for {T}: .*transactions {txn} of o .*are open"):
        batch(reader, end=now)
    assert batch(reader, end=now, timeout=None) == {(str(T), plain)}
    assert bench.clock.now <= now + 1_000 + bench.settings.deadline_allowance_ms + 100, "the batch waited longer than it must"


def test_a_plain_append_takes_its_publish_time_when_it_is_appended() -> None:
    """An append may be slow, because of its checks or because it writes a long list of parts to a file. A plain append has no
    header that would show its start to a reader. So its publish time is the time of the append itself.
    """
    bench = Bench(topics=PERSISTENT)

    part, unique = bench.part("a"), bench.unique

    def slow() -> str:
        bench.clock.now += 1_000
        return unique()

    bench.unique = slow  # type: ignore[method-assign]
    party = bench.instream()
    began = bench.clock.now
    number = party.coordinator.append(None, {T: [part]})[str(T)]
    reading = bench.instream().buffer.read(T)
    assert dict(reading.published())[number] >= began + 1_000


def test_a_stream_from_a_timestamp_starts_where_a_batch_up_to_it_ends() -> None:
    """Each row is either in a batch up to a timestamp T, or in a stream from T + 1 ms. A row that an open transaction published at
    or before T belongs to the batch. A start in the future is an error.
    """
    from pyspark.sql.types import LongType, StructField, StructType

    from metadata.client import client as clients
    from spark_txn_source.stream import StreamReader

    bench = Bench(topics=PERSISTENT)
    reader, writer = client(bench.instream().cluster), bench.instream().coordinator
    reader.topics.create(topic_name("s"))
    txn = writer.begin(topics=[T], timeout_ms=1_000)
    number = writer.append(txn, {T: [bench.part("a")]})[str(T)]
    now = bench.clock.now
    given = {"serviceUrl": "memory://t", "topics": f"{T},s", "startingTimestamp": str(now + 1)}

    def commit(kind: str, what: str) -> Fate:
        if writer.log.live():
            writer.end(txn, commit=True)
        return Fate.GO

    class Here(StreamReader):
        def _client(self) -> clients.Client:
            return reader

    kind = StructType([StructField("n", LongType())])
    stream = Here(given, kind)
    with pytest.raises(OffsetOutOfRange, match="the store's time is"):
        Here(given | {"startingTimestamp": str(now + 3_600_000)}, kind).initialOffset()
    bench.clock.pause = commit
    start = stream.initialOffset()
    assert int(start[str(T)].partition(":")[0]) > number
    assert batch(reader, end=now) == {(str(T), number)}


def test_a_publish_time_is_never_before_the_begin_of_its_transaction() -> None:
    """Of an open transaction, a read by publish time knows only when the transaction began. So no publish time of its rows is
    before the begin, even if the clock is set back after the begin.
    """
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T])
    began = bench.clock.now_ms()
    bench.clock.now -= 1_000
    party.coordinator.append(txn, {T: [bench.part("a")]})
    party.coordinator.end(txn, commit=True)
    assert [found.publish_ms for found in party.buffer.read(T).ledgers()] == [began]
