"""Planning a batch of persistent topics: one reading of each, by which everything else is judged (without a JVM)."""

from __future__ import annotations

from collections.abc import Callable

from instream_bench import At, Bench, T, U

from metadata.client import Client, client
from metadata.instream.migrating import Migrator
from metadata.names import topic_name
from spark_txn_source import persistent
from spark_txn_source.options import ReadOptions

Y = topic_name("topic://public/default/y")
OPTIONS = ReadOptions.parse({"serviceUrl": "memory://t", "topics": f"{T},{U}"}, streaming=False)


def cost(gate: At, what: Callable[[], object]) -> int:
    """In round trips, when it was done before."""
    what()
    before = gate.steps
    what()
    return gate.steps - before


def one_reading_each(mine: Client) -> list[int]:
    return [mine.instream.buffer.read(name).cut for name in (T, U)]


def test_a_plan_costs_one_reading_of_each_topic() -> None:
    """And one round trip more if one was migrated: whether what goes on still has its rows."""
    bench, gate = Bench(), At(-1)
    mine, other = client(bench.party(gate).cluster), bench.party()
    other.coordinator.commit(bench.work())
    assert [one.end for one in persistent.read_batch(mine, OPTIONS)] == one_reading_each(mine)
    assert cost(gate, lambda: persistent.read_batch(mine, OPTIONS)) == cost(gate, lambda: one_reading_each(mine))
    migrator = Migrator(other.cluster, other.coordinator)
    migrator.migrate(T, Y)
    assert cost(gate, lambda: persistent.read_batch(mine, OPTIONS)) == cost(gate, lambda: one_reading_each(mine)) + 1
    migrator.topics.delete(Y)
    assert [one.reading.name for one in persistent.read_batch(mine, OPTIONS)] == [str(U)]
