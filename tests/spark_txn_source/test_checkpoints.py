"""A stream's checkpoint is used with a cluster other than its own, or with other topics than before.

Readers are called as Spark calls them (`conformance.harness.spark_driver`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from conformance.harness.spark_driver import MicroBatchExecution, numbers
from metadata.common.errors import OffsetOutOfRange, OptionError
from txnsegment import Cluster, connect, restore


def commit(cluster: Cluster, topic: str, *numbers: int) -> None:
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"n": pa.array(numbers, pa.int64())}))
        txn.commit()


def drained(query: MicroBatchExecution, **options: str) -> list[int]:
    """Run the query until it has read all rows. Return these rows."""
    query.start(options)
    found: list[int] = []
    try:
        while (batches := query.next()) is not None:
            found += numbers(batches)
    finally:
        query.stop()
    return found


def test_a_checkpoint_counts_for_the_cluster_that_it_was_made_with(cluster: Cluster, tmp_path: Path) -> None:
    """A checkpoint is valid after one restore. After a second restore from the same backup, the checkpoint's numbers mean other
    rows, so the checkpoint is refused.
    """
    cluster.topics.create("t", schema="n bigint")
    commit(cluster, "t", 1)
    cluster.client.finish()  # this call waits for folds, which would change the copied ledgers
    cluster.backup(tmp_path / "backup")
    root = Path(cluster.ledgers.removeprefix("file://")).rename(tmp_path / "ledgers")
    query, urls = MicroBatchExecution(), [f"file://{tmp_path}/{name}" for name in ("first", "second")]
    options = {"path": "t", "startingOffsets": "earliest"}
    shutil.copytree(root, cluster.ledgers.removeprefix("file://"))
    assert drained(query, serviceUrl=cluster.url, **options) == [1]
    restore(tmp_path / "backup", urls[0], ledgers=root.as_uri())
    with connect(urls[0]) as first:
        commit(first, "t", 2)
        commit(first, "t", 3)
        assert drained(query, serviceUrl=urls[0], **options) == [2, 3], (
            "the restored cluster has the rows that the checkpoint counts as read"
        )
    restore(tmp_path / "backup", urls[1], ledgers=root.as_uri())
    with connect(urls[1]) as second:
        for n in range(4):
            commit(second, "t", n)
        with pytest.raises(OffsetOutOfRange, match="created again, restored again, or is not the one of the checkpoint"):
            drained(query, serviceUrl=urls[1], **options)


def test_a_topic_added_to_a_subscribed_stream_loses_no_unacknowledged_row(cluster: Cluster) -> None:
    for topic in ("a", "b"):
        cluster.topics.create(topic, schema="n bigint")
        cluster.subscriptions.create(topic, "s", start="earliest")
    commit(cluster, "b", 100, 101)
    commit(cluster, "a", 1)
    query = MicroBatchExecution()
    options = {"serviceUrl": cluster.url, "subscription": "s"}
    assert drained(query, topics="a", **options) == [1]
    commit(cluster, "a", 2)
    changed = options | {"topics": "a,b", "topicsChanged": "continue"}
    with pytest.raises(
        OptionError, match=r"'s' has unacknowledged rows of topic://public/default/b .*seek topic://public/default/b s"
    ):
        drained(query, **changed)
    with cluster.consumer("b", "s") as consumer:
        consumer.ack(list(consumer.messages(timeout=0)))
    commit(cluster, "b", 102)
    assert drained(query, **changed) == [2, 102]


@pytest.mark.parametrize("topic", ["topic://public/default/t", "persistent://public/default/t"])
def test_a_subscription_added_to_a_stream_loses_no_unacknowledged_row(cluster: Cluster, topic: str) -> None:
    cluster.topics.create(topic, schema="n bigint")
    cluster.subscriptions.create(topic, "s", start="earliest")
    commit(cluster, topic, 1)
    query = MicroBatchExecution()
    options = {"serviceUrl": cluster.url, "path": topic}
    assert drained(query, **options) == [], "the query starts at the latest offset"
    with pytest.raises(OptionError, match=rf"'s' has unacknowledged rows of {topic} at or below \d+, the stream's offset"):
        drained(query, **options, subscription="s")
    cluster.subscriptions.seek(topic, "s", "latest")
    commit(cluster, topic, 2)
    assert drained(query, **options, subscription="s") == [2]
    commit(cluster, topic, 3)
    assert drained(query, **options, subscription="s") == [3]
    with cluster.consumer(topic, "s") as consumer:
        assert [message.value["n"] for message in consumer.messages(timeout=0)] == [3], "the cursor moves with the next batch"


def test_a_checkpoint_file_resumes_after_a_kill_between_any_two_steps(cluster: Cluster, tmp_path: Path) -> None:
    """Spark is killed between two steps. A batch that was planned and not committed is then read again, with the same rows."""
    cluster.topics.create("t", schema="n bigint")
    options = {"serviceUrl": cluster.url, "path": "t", "startingOffsets": "earliest"}
    commit(cluster, "t", 1)

    def started() -> MicroBatchExecution:
        query = MicroBatchExecution(tmp_path / "checkpoint")
        query.start(options)
        return query

    planned = started()
    assert planned.construct()
    commit(cluster, "t", 2)
    read = started()
    assert numbers(read.run() or []) == [1]
    read = started()
    assert numbers(read.next() or []) == [1]
    assert numbers(started().next() or []) == [2]
    assert started().next() is None
