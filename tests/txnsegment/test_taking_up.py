"""A program leaves and resumes a consumer's loops. Each row is delivered once, and only delivered rows are acknowledged."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.common.errors import AckConflict, CorruptPart, NotDelivered, SubscriptionNotFound
from txnsegment import Batch, Cluster, Consumer, Message, Transaction, connect

NOW = 0.0
"""A timeout of 0: a read returns the rows that are there and does not wait."""


def table(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"k": [f"k{n % 5}" for n in numbers], "n": pa.array(numbers, pa.int64())})


class LeftInTheMiddle(Exception):
    """An exception that the body of a loop raises to leave the loop."""


class Run:
    """A consumer of two topics, and the rows that it must deliver. `given`: the rows that were delivered since the last rewind.
    `ever`: all rows that were delivered so far.
    """

    def __init__(self, cluster: Cluster, consumer: Consumer) -> None:
        self.cluster, self.consumer = cluster, consumer
        self.written: list[int] = []
        self.given: list[Message] = []
        self.ever: set[int] = set()
        self.acked: set[int] = set()
        self.acked_at_rewind: set[int] = set()
        self.last: Message | Batch | None = None
        self.kept: list[Iterator[Message | Batch]] = []
        """Loops that were left but not closed."""

    # --- commands ---------------------------------------------------------------------------------------------------

    def write(self, a: int, b: int) -> None:
        with self.cluster.begin() as txn:
            for topic, count in (("a", a), ("b", b)):
                first = len(self.written)
                txn.append(topic, table(first, count))
                self.written += range(first, first + count)
            txn.commit()

    def take(self, how: str, by_batch: bool, count: int) -> None:
        """Start a new loop, and leave it after `count` rounds."""
        consumer = self.consumer
        loop: Iterator[Message | Batch] = consumer.batches(timeout=NOW) if by_batch else consumer.messages(timeout=NOW)
        if how == "next":
            for _ in range(count):
                if (one := next(loop, None)) is None:
                    break
                self.handed_out(one)
            self.kept.append(loop)
            return
        with suppress(LeftInTheMiddle):
            for i, one in enumerate(loop):
                self.handed_out(one)
                if i + 1 == count:
                    if how == "raise":
                        raise LeftInTheMiddle
                    break
        if how == "close":
            loop.close()  # type: ignore[attr-defined]
        elif how == "collect":
            del loop
            gc.collect()

    def go_on(self, which: int, count: int) -> None:
        """Take `count` further rounds of a loop that `take` has left in the middle. Later loops may exist."""
        if self.kept:
            loop = self.kept[which % len(self.kept)]
            for _ in range(count):
                if (one := next(loop, None)) is None:
                    self.kept.remove(loop)
                    return
                self.handed_out(one)

    def handed_out(self, one: Message | Batch) -> None:
        self.last = one
        for message in [one] if isinstance(one, Message) else one.messages():
            assert message.value["n"] not in self.acked_at_rewind, "the row was acknowledged before"
            assert message.value["n"] not in {m.value["n"] for m in self.given}, "the row came twice"
            self.given.append(message)
            self.ever.add(message.value["n"])
        numbers = [int(message.id.split(":")[0]) for message in self.given]
        assert numbers == sorted(numbers), "transactions came out of order"

    def ack_cumulative(self, at: int | None, end: str) -> None:
        """Acknowledge up to the last delivered message or batch, or up to an earlier row. `end`: whether the ack is in a
        transaction, and how this transaction ends.
        """
        if not self.given or self.last is None:
            return
        one = self.last if at is None else self.given[at % len(self.given)]
        last = one if isinstance(one, Message) else list(one.messages())[-1]
        numbers = [message.value["n"] for message in self.given]
        covered = set(numbers[: numbers.index(last.value["n"]) + 1])
        if end == "alone":
            self.consumer.ack_cumulative(one)
        else:
            with self.cluster.begin() as txn:
                self.consumer.ack_cumulative(one, txn=txn)
                self.end(txn, end)
        if end != "abort":
            self.acked |= covered
        self.check_acked()

    def ack(self, at: int, end: str) -> None:
        """Acknowledge one row."""
        left = [message for message in self.given if message.value["n"] not in self.acked]
        if not left:
            return
        one = left[at % len(left)]
        if end == "alone":
            self.consumer.ack(one)
        else:
            with self.cluster.begin() as txn:
                self.consumer.ack(one, txn=txn)
                self.end(txn, end)
        if end != "abort":
            self.acked.add(one.value["n"])
        self.check_acked()

    def end(self, txn: Transaction, how: str) -> None:
        if how == "commit":
            txn.commit()
            return
        txn.abort()
        self.begin_anew()

    def rewind(self) -> None:
        self.consumer.rewind()
        self.begin_anew()

    def begin_anew(self) -> None:
        self.given, self.last, self.acked_at_rewind = [], None, set(self.acked)

    def split(self) -> None:
        active = [s.id for s in self.cluster.topics.describe("a").segments if s.sealed_ms is None]
        if len(active) < 4:
            self.cluster.topics.split("a", active[-1])

    def fold(self) -> None:
        self.cluster.sweep()

    # --- oracles ----------------------------------------------------------------------------------------------------

    def check_acked(self) -> None:
        """Check that the subscription has acknowledged exactly the expected rows, and only delivered ones."""
        with self.cluster.consumer(["a", "b"], "s") as other:
            left = [message.value["n"] for message in other.messages(timeout=NOW)]
        assert sorted({*self.written} - self.acked) == sorted(left)
        assert self.acked <= self.ever

    def check_all(self) -> None:
        """Read the remaining rows: two of them in a loop over messages, all others in a loop over batches. Check that every row
        which was unacknowledged at the last rewind has been delivered since then.
        """
        self.take("break", by_batch=False, count=2)
        self.take("break", by_batch=True, count=1_000_000)
        delivered = {message.value["n"] for message in self.given}
        assert delivered == set(self.written) - self.acked_at_rewind
        self.check_acked()


ends = st.sampled_from(["alone", "commit", "abort"])
counts = st.integers(1, 6)
commands = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 6), st.integers(0, 3)),
    st.tuples(st.just("take"), st.sampled_from(["next", "break", "raise", "close", "collect"]), st.booleans(), counts),
    st.tuples(st.just("take"), st.sampled_from(["next", "break", "raise", "close", "collect"]), st.booleans(), counts),
    st.tuples(st.just("go_on"), st.integers(0, 3), counts),
    st.tuples(st.just("ack_cumulative"), st.none() | st.integers(0, 30), ends),
    st.tuples(st.just("ack"), st.integers(0, 30), ends),
    st.sampled_from([("rewind",), ("split",), ("fold",)]),
)


@settings(max_examples=25)
@given(steps=st.lists(commands, min_size=4, max_size=16))
def test_each_row_is_delivered_once_after_any_exit_from_a_loop(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple]
) -> None:
    with connect(f"file://{tmp_path_factory.mktemp('cluster')}/c") as cluster, ExitStack() as stack:
        cluster.topics.create("a", segments=2, key="k", schema="k string, n bigint")
        cluster.topics.create("b", schema="k string, n bigint")
        run = Run(cluster, stack.enter_context(cluster.consumer(["a", "b"], "s", start="earliest")))
        run.write(5, 2)
        for name, *arguments in steps:
            getattr(run, name)(*arguments)
        run.check_all()


@pytest.fixture
def consumer(cluster: Cluster) -> Iterator[Consumer]:
    cluster.topics.create("t", schema="k string, n bigint")
    for first, count in ((1, 3), (4, 2)):
        write(cluster, first, count)
    with cluster.consumer("t", "s", start="earliest") as made:
        yield made


def write(cluster: Cluster, first: int, count: int) -> None:
    with cluster.begin() as txn:
        txn.append("t", table(first, count))
        txn.commit()


def numbers(consumer: Consumer) -> list[int]:
    return [message.value["n"] for message in consumer.messages(timeout=NOW)]


def test_a_loop_exit_after_one_row_loses_no_row(consumer: Consumer) -> None:
    found = []
    for _ in range(2):
        message = next(consumer.messages(timeout=NOW))
        consumer.ack_cumulative(message)
        found.append(message.value["n"])
    assert found == [1, 2]
    consumer.rewind()
    assert numbers(consumer) == [3, 4, 5]


def test_batches_begin_after_the_rows_delivered_by_messages(consumer: Consumer) -> None:
    assert next(consumer.messages(timeout=NOW)).value["n"] == 1
    rest = next(consumer.batches(timeout=NOW))
    assert rest.rows.column("n").to_pylist() == [2, 3]
    assert [message.id for message in rest.messages()] == rest.ids
    assert [id_.split(":")[2] for id_ in rest.ids] == ["1", "2"]
    consumer.ack(rest)
    assert numbers(consumer) == [4, 5]
    consumer.rewind()
    assert numbers(consumer) == [1, 4, 5]


def test_two_loops_at_once_share_the_rows(consumer: Consumer) -> None:
    one, two = consumer.messages(timeout=NOW), consumer.messages(timeout=NOW)
    assert [next(one).value["n"], next(two).value["n"], next(one).value["n"]] == [1, 2, 3]
    assert [message.value["n"] for message in two] == [4, 5]


def test_a_temporarily_missing_file_loses_no_row(cluster: Cluster, consumer: Consumer) -> None:
    """A missing file raises an error in a loop. The next loop continues with the next row, and repeats no row."""
    parts = Path(cluster.ledgers.removeprefix("file://")).rglob("*.parquet")
    (_, second) = sorted(parts, key=lambda path: path.stat().st_mtime_ns)
    found = [next(consumer.messages(timeout=NOW)).value["n"]]
    away = second.rename(second.with_suffix(".away"))
    rows = consumer.messages(timeout=NOW)
    found += [next(rows).value["n"], next(rows).value["n"]]
    with pytest.raises(CorruptPart, match="the file is missing"):
        next(rows)
    away.rename(second)
    assert found == [1, 2, 3]
    assert numbers(consumer) == [4, 5]


def test_a_retried_transaction_acknowledges_the_rows_of_its_first_try(cluster: Cluster) -> None:
    """A transaction acknowledges rows and is aborted. The program repeats the transaction without reading again. The second try
    acknowledges the rows of the first try, so none is delivered again.
    """
    cluster.topics.create("t", segments=2, key="k", schema="k string, n bigint")
    with cluster.consumer("t", "s", start="earliest") as consumer:
        write(cluster, 0, 10)
        write(cluster, 10, 10)
        *_, last = consumer.messages(timeout=NOW)
        with cluster.begin() as txn:
            consumer.ack_cumulative(last, txn=txn)
            txn.abort()
        with cluster.begin() as txn:
            consumer.ack_cumulative(last, txn=txn)
            txn.commit()
        assert consumer.lag().rows == 0
        assert numbers(consumer) == []


def test_a_cumulative_ack_in_an_open_transaction_replaces_no_other_ack(cluster: Cluster, consumer: Consumer) -> None:
    """A transaction has a cumulative ack and is not committed yet. The ack becomes pending only at the commit. Until then other
    cumulative acks of the same rows take effect, with or without a transaction. After them the commit raises AckConflict.
    """
    *_, last = consumer.messages(timeout=NOW)
    late = cluster.begin()
    consumer.ack_cumulative(last, txn=late)
    with cluster.begin() as txn:
        consumer.ack_cumulative(last, txn=txn)
        consumer.ack_cumulative(last, txn=txn)
        txn.commit()
    assert consumer.lag().rows == 0
    with pytest.raises(AckConflict, match="acknowledged already"):
        late.commit()
    write(cluster, 6, 1)
    (new,) = consumer.messages(timeout=NOW)
    late = cluster.begin()
    consumer.ack_cumulative(new, txn=late)
    consumer.ack_cumulative(new)
    assert consumer.lag().rows == 0


def test_a_cumulative_ack_after_a_rewind_covers_the_rows_before_its_row(cluster: Cluster) -> None:
    cluster.topics.create("t", segments=2, key="k", schema="k string, n bigint")
    with cluster.consumer("t", "s", start="earliest") as consumer:
        write(cluster, 0, 10)
        write(cluster, 10, 10)
        given = list(consumer.messages(timeout=NOW))
        consumer.rewind()
        consumer.ack_cumulative(given[14])
        consumer.rewind()
        assert numbers(consumer) == [message.value["n"] for message in given[15:]]


def test_a_cumulative_ack_covers_rows_delivered_by_its_consumer(cluster: Cluster, consumer: Consumer) -> None:
    with cluster.consumer("t", "s") as other:
        *_, last = other.messages(timeout=NOW)
        next(consumer.messages(timeout=NOW))
        with pytest.raises(NotDelivered, match="was not delivered by this consumer of 's'"):
            consumer.ack_cumulative(last)
        assert cluster.subscriptions.describe("t", "s").lag.rows == 5
        *_, mine = consumer.messages(timeout=NOW)
        consumer.ack_cumulative(mine)


def test_rows_returned_by_a_seek_are_not_covered_by_an_older_cumulative_ack(cluster: Cluster, consumer: Consumer) -> None:
    cluster.subscriptions.seek("t", "s", to="latest")
    consumer.rewind()
    write(cluster, 6, 1)
    (six,) = consumer.messages(timeout=NOW)
    cluster.subscriptions.seek("t", "s", to="earliest")
    consumer.rewind()
    with pytest.raises(NotDelivered):
        consumer.ack_cumulative(six)
    assert numbers(consumer) == [1, 2, 3, 4, 5, 6]
    consumer.ack_cumulative(six)
    assert cluster.subscriptions.describe("t", "s").lag.rows == 0


def test_a_failed_rewind_is_repeated(cluster: Cluster, consumer: Consumer) -> None:
    """A rewind raises an error. The next read repeats the rewind, so that no row is skipped."""
    cluster.topics.create("u", schema="k string, n bigint")
    with cluster.consumer(["t", "u"], "s", start="earliest") as both:
        assert numbers(both) == [1, 2, 3, 4, 5]
        cluster.subscriptions.delete("u", "s")
        with pytest.raises(SubscriptionNotFound):
            both.rewind()
        cluster.subscriptions.create("u", "s")
        assert numbers(both) == [1, 2, 3, 4, 5]


def test_an_ack_of_another_consumer_is_a_conflict_in_either_order(cluster: Cluster, consumer: Consumer) -> None:
    with cluster.consumer("t", "s") as other:
        mine, theirs = next(consumer.messages(timeout=NOW)), next(other.messages(timeout=NOW))
        consumer.ack(mine)
        with pytest.raises(AckConflict):
            other.ack(theirs)
        assert numbers(consumer) == numbers(other) == [2, 3, 4, 5]
