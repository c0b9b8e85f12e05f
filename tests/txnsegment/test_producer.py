"""A producer whose flush fails keeps its rows. The rows can be written later, or given up."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest

from metadata.common.errors import (
    OptionError,
    OutcomeUnknown,
    ProducerFull,
    SchemaError,
    SegmentSealed,
    TopicNotFound,
    Unavailable,
)
from metadata.write.write_set import Committed
from tests.support.rows import rows
from txnsegment import Cluster, Producer
from txnsegment.transaction import Transaction

SCHEMA = "n bigint"


def numbers(cluster: Cluster) -> list[int]:
    return [row["n"] for row in rows(cluster, "t")]


def make(cluster: Cluster) -> None:
    cluster.topics.create("t", schema=SCHEMA)


def make_again(cluster: Cluster) -> None:
    cluster.topics.delete("t")
    make(cluster)


class Eventful(Transaction):
    """A transaction that calls `before` just before its first commit, and `after` just after it."""

    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None

    def commit(self) -> Committed:
        before, self.before = self.before, None
        if before is not None:
            before()
        committed = super().commit()
        after, self.after = self.after, None
        if after is not None:
            after()
        return committed


def eventful(
    cluster: Cluster, *, before: Callable[[], object] | None = None, after: Callable[[], object] | None = None, **options: int
) -> Producer:
    """Return a producer. Its first flush calls `before` when the rows are staged, and `after` when they are committed."""
    happenings = [(before, after)]

    def begin() -> Transaction:
        txn = Eventful(cluster.client, app=None, version=None, timeout_ms=30_000)
        txn.before, txn.after = happenings.pop() if happenings else (None, None)
        return txn

    return Producer(begin, cluster.topics.describe("t").name, **options)


def fail(error: Exception) -> Callable[[], object]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_rows_go_to_the_recreated_topic(cluster: Cluster) -> None:
    """The topic is deleted and created again during the first flush, which raises an error. The next flush writes the kept rows."""
    make(cluster)
    producer = eventful(cluster, before=lambda: make_again(cluster))
    producer.send({"n": 1})
    producer.send({"n": 2})
    with pytest.raises(SegmentSealed, match="was deleted while this write was under way") as told:
        producer.flush()
    assert "keeps the 2 rows that wait: flush() tries again, discard() drops" in str(told.value)
    producer.send({"n": 3})
    committed = producer.flush()
    assert committed is not None
    assert committed.rows == 3
    assert numbers(cluster) == [1, 2, 3]
    assert producer.flush() is None


def test_rows_staged_before_an_outage_go_to_the_recreated_topic(cluster: Cluster) -> None:
    make(cluster)
    producer = eventful(cluster, before=fail(Unavailable("The store is away.", advice="Try again.")))
    producer.send({"n": 1})
    with pytest.raises(Unavailable):
        producer.flush()
    make_again(cluster)
    with pytest.raises(SegmentSealed):
        producer.flush()
    assert producer.flush() is not None
    assert numbers(cluster) == [1]


def test_an_outage_stages_no_row_twice(cluster: Cluster) -> None:
    make(cluster)
    producer = eventful(cluster, before=fail(Unavailable("The store is away.", advice="Try again.")))
    producer.send({"n": 1})
    with pytest.raises(Unavailable):
        producer.flush()
    assert producer.flush() is not None
    assert numbers(cluster) == [1]
    assert sum(file.path.endswith(".parquet") for file in cluster.client.cluster.storage.list()) == 1


def test_rows_are_given_up_while_there_is_no_topic(cluster: Cluster) -> None:
    make(cluster)
    producer = cluster.producer("t")
    producer.send({"n": 1})
    cluster.topics.delete("t")
    for _ in range(2):
        with pytest.raises(TopicNotFound, match=re.escape("topic://public/default/t keeps the 1 rows")):
            producer.flush()
    assert producer.discard() == [{"n": 1}]
    assert producer.flush() is None
    make(cluster)
    producer.send({"n": 2})
    assert producer.flush() is not None
    assert numbers(cluster) == [2]


def test_rows_whose_commit_is_not_known_are_never_staged_anew(cluster: Cluster) -> None:
    """The first flush committed its row, but lost the reply. The second flush does not write this row again."""
    make(cluster)
    producer = eventful(cluster, after=fail(OutcomeUnknown("The reply was lost.", advice="Run it again.")))
    producer.send({"n": 1})
    with pytest.raises(OutcomeUnknown, match="keeps the 1 rows"):
        producer.flush()
    producer.send({"n": 2})
    assert (committed := producer.flush()) is not None
    assert committed.rows == 1, "the second transaction has only the row that was sent after the first"
    assert numbers(cluster) == [1, 2]
    assert producer.flush() is None


def test_rows_that_were_sent_after_a_flush_that_failed_are_committed_with_the_block(cluster: Cluster) -> None:
    """A flush fails. The end of the block, or the next `write`, commits the kept rows and the rows that were sent afterwards, in
    the order in which they were sent. The rows of `write` come last.
    """
    make(cluster)
    with eventful(cluster, before=fail(Unavailable("The store is away.", advice="Try again."))) as producer:
        producer.send({"n": 1})
        with pytest.raises(Unavailable):
            producer.flush()
        producer.send({"n": 2})
    assert numbers(cluster) == [1, 2]
    producer = eventful(cluster, before=fail(Unavailable("The store is away.", advice="Try again.")))
    producer.send({"n": 3})
    with pytest.raises(Unavailable):
        producer.flush()
    producer.send({"n": 4})
    producer.write(pa.table({"n": [5]}))
    assert numbers(cluster) == [1, 2, 3, 4, 5]


def test_an_error_after_an_unknown_outcome_does_not_stage_anew(cluster: Cluster) -> None:
    make(cluster)
    producer = eventful(cluster, before=fail(OutcomeUnknown("The reply was lost.", advice="Run it again.")))
    producer.send({"n": 1})
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    make_again(cluster)
    for _ in range(2):
        with pytest.raises(SegmentSealed, match="keeps the 1 rows"):
            producer.flush()
    assert numbers(cluster) == []
    assert producer.discard() == [{"n": 1}]


def test_a_producer_keeps_to_its_limit_of_waiting_rows(cluster: Cluster) -> None:
    make(cluster)
    producer = cluster.producer("t", max_waiting=2)
    producer.send({"n": 1})
    producer.send({"n": 2})
    with pytest.raises(ProducerFull, match="2 rows wait in the producer of topic://public/default/t, which keeps no more"):
        producer.send({"n": 3})
    producer.flush()
    producer.send({"n": 3})
    producer.flush()
    assert numbers(cluster) == [1, 2, 3]
    for wrong in (0, True, 1.5):
        with pytest.raises(OptionError, match="max_waiting"):
            cluster.producer("t", max_waiting=wrong)


def test_columns_that_only_later_rows_have_are_written(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n bigint, more string")
    with cluster.producer("t") as producer:
        producer.send({"n": 1})
        producer.send({"more": "x", "n": 2})
        producer.send({"more": "y"})
    assert rows(cluster, "t") == [{"n": 1, "more": None}, {"n": 2, "more": "x"}, {"n": None, "more": "y"}]


@pytest.mark.parametrize("second", ["x", [1], 2**70, object()])
def test_rows_of_conflicting_types_raise_a_product_error(cluster: Cluster, second: object) -> None:
    make(cluster)
    producer = cluster.producer("t")
    producer.send({"n": 1})
    producer.send({"n": second})
    with pytest.raises(SchemaError, match=r"column 'n'.*keeps the 2 rows"):
        producer.flush()
    for row in producer.discard()[:1]:
        producer.send(row)
    producer.flush()
    assert numbers(cluster) == [1]


def test_rows_without_columns_are_refused(cluster: Cluster) -> None:
    make(cluster)
    producer = cluster.producer("t")
    with pytest.raises(SchemaError, match="A row without columns"):
        producer.send({})
    assert producer.flush() is None
