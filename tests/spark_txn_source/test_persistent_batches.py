"""Tests how batches of persistent topics are planned. One reading of each topic decides the whole plan. The tests need no JVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from metadata.client.client import Client, client
from metadata.client.logs import Logs
from metadata.common.errors import TopicNotFound
from metadata.instream.migrating import Migrator
from metadata.read.log_reader import now
from metadata.records.names import topic_name
from spark_txn_source import plan
from spark_txn_source.options import ReadOptions
from tests.support.bench import PERSISTENT, At, Bench, label

T, U = PERSISTENT

Y = topic_name("topic://public/default/y")
OPTIONS = ReadOptions.parse({"serviceUrl": "memory://t", "topics": f"{T},{U}"}, streaming=False)


def cost(gate: At, what: Callable[[], object]) -> int:
    """Return the round trips of a second call of `what`."""
    what()
    before = gate.steps
    what()
    return gate.steps - before


def one_reading_each(mine: Client) -> list[int]:
    return [mine.instream.buffer.read(name).cut for name in (T, U)]


def test_a_plan_costs_one_reading_of_each_topic() -> None:
    """The plan of a batch takes the round trips of one reading of each topic. A migrated topic costs no more, because the same
    reading shows whether the successor still has the migrated rows.
    """
    bench, gate = Bench(topics=PERSISTENT), At(-1)
    mine, other = client(bench.instream(gate).cluster), bench.instream()
    other.coordinator.commit(bench.work())

    def planned() -> int:
        """Return how many round trips the plan of a batch takes, without those for the reading of the cluster's log."""
        shared = cost(gate, lambda: Logs(mine, OPTIONS.selection).read_shared(now))
        ends = {one.log: one.end for one in plan.read_batch(mine, OPTIONS)}
        assert [ends[str(name)] for name in (T, U)] == one_reading_each(mine)
        return cost(gate, lambda: plan.read_batch(mine, OPTIONS)) - shared

    assert planned() == cost(gate, lambda: one_reading_each(mine))
    Migrator(other.cluster, other.coordinator).migrate(T, Y)
    assert planned() == cost(gate, lambda: one_reading_each(mine))


def rows(mine: Client, options: ReadOptions) -> list[str]:
    """Return the labels of the rows of a batch."""
    ranges = plan.read_batch(mine, options)
    found = [ledger for one in ranges for segment in one.reading.segments for ledger in one.left(segment)]
    return sorted(label(part) for ledger in found for part in ledger.parts)


def deleted_at(step: int, options: ReadOptions) -> tuple[str, list[str] | None]:
    """Read a batch, and delete the successor of T at step `step` of the read. T and its successor have a row each. Return the store
    call at this step, and the labels of the rows that the batch returns, or None if it raises TopicNotFound.
    """
    bench = Bench(topics=[T])
    other = bench.instream()
    other.coordinator.commit(bench.work(1, app="before", topics=[T]))
    migrator = Migrator(other.cluster, other.coordinator)
    migrator.migrate(T, Y)
    owner, work = client(other.cluster), bench.work(1, app="after", topics=[T])
    (segment,) = [s for s in owner.topics.get(Y).segments() if s.startswith("segment")]
    owner.coordinator.commit(dataclasses.replace(work, parts={segment: work.parts[str(T)]}))
    gate = At(step, meanwhile=lambda: migrator.topics.delete(Y))
    found: list[str] | None
    try:
        found = rows(client(bench.instream(gate).cluster), options)
    except TopicNotFound:
        found = None
    return gate.hit, found


@pytest.mark.parametrize("what", [str(T), ".*/(t|y)", "persistent://.*/t"])
def test_a_deletion_at_any_step_of_a_batch_removes_all_rows_or_none(what: str) -> None:
    """The rows of a migrated topic and of its successor are read together or not at all. After the deletion a name raises an error,
    and a pattern matches no topic.
    """
    nothing: list[str] | None = [] if "*" in what else None
    both = ["after.1", "before.1"]
    options = ReadOptions.parse({"serviceUrl": "memory://t", "topicsPattern" if "*" in what else "topic": what}, streaming=False)
    answers, step, hit = [], 0, "first"
    while hit:
        hit, found = deleted_at(step, options)
        assert found in (nothing, both), f"deleted at {hit}"
        answers.append(found)
        step += 1
    assert nothing in answers
    assert both in answers
