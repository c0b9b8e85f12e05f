"""Several reads of a topic may see different states. Reads up to one `cluster.snapshot` see the same state (docs/guide.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from tests.spark.conftest import Deployment

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def one(here: Deployment, topic: str, number: int) -> None:
    here.append(topic, pa.table({"n": pa.array([number], pa.int64())}))


def test_several_reads_of_a_topic(here: Deployment) -> None:
    """Reads of a topic in Spark see the states that the guide's table says. Reads up to the same snapshot return the same rows."""
    for topic in ("t", "u"):
        here.cluster.topics.create(topic, schema="n bigint")
        one(here, topic, 1)
    loaded = here.read()
    one(here, "t", 2)
    assert loaded.count() == 2, "the first action plans the read"
    state = here.cluster.snapshot(["t", "u"])
    pinned = {topic: here.read(topic, endingOffsets=state) for topic in ("t", "u")}
    one(here, "t", 3)
    one(here, "u", 3)
    assert loaded.count() == loaded.alias("a").join(loaded.alias("b"), "n").count() == 2, "later actions keep the plan"
    assert here.read().count() == here.scan().count() == 3

    def states() -> list[int]:
        joined = pinned["t"].where("n > 0").alias("a").join(pinned["t"].where("n < 9").alias("b"), "n")
        frames = [pinned["t"], pinned["u"], joined, here.read(["t", "u"], endingOffsets=state), here.scan("t", endingOffsets=state)]
        return [frame.where("n > 0").count() for frame in frames]

    assert states() == [2, 1, 2, 3, 2]
    before = here.spark.conf.get(PUSHDOWN)
    here.spark.conf.set(PUSHDOWN, "true")
    try:
        filtered = here.read().where("n > 0")
        assert filtered.count() == 3
        one(here, "t", 4)
        assert filtered.count() == 4, "each query is planned anew"
        assert states() == [2, 1, 2, 3, 2]
    finally:
        here.spark.conf.set(PUSHDOWN, before)
