"""A commit takes at most seven consecutive requests in a process that has committed before, for any number of segments and parts,
and with any history. The record of a topic with the maximum number of segments has room for a split of every segment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.harness.faulty_store import FaultyStore
from conformance.harness.round_trips import Counting
from ledgers.storage import LedgerStorage
from metadata.client.client import client
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.common.errors import OptionError, ValueTooLarge
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.names import MAX_SEGMENTS, topic_name
from metadata.records.records import TcSequence
from metadata.store.sqlite import SqliteStore
from tests.support.round_trips import BLOCK, trips


def test_a_commit_and_a_read_keep_to_their_round_trips_on_sqlite(tmp_path: Path) -> None:
    url, settings = f"file://{tmp_path}/c", Settings(txn_id_block=BLOCK)
    open_cluster(url, settings=settings).close()
    counting = Counting()
    store = FaultyStore(SqliteStore(f"{tmp_path}/c"), counting)
    one = client(Cluster(url, store, LedgerStorage(f"file://{tmp_path}/ledgers"), settings))
    found = trips(one, lambda: counting.mine)
    one.close()
    assert max(found) <= 7, found
    assert len(set(found)) == 1, found


def test_ids_are_never_given_twice_across_blocks(tmp_path: Path) -> None:
    with_block = Settings(txn_id_block=4)
    cluster = open_cluster(f"file://{tmp_path}/c", settings=with_block)
    one, two = client(cluster), client(cluster)
    ids: list[str] = []
    for i in range(30):
        for ids_of in (one.coordinator.ids, two.coordinator.ids):
            ids.append(ids_of.next())
            if i % 3 == 0:
                ids_of.refill()
    assert len(set(ids)) == 60
    record = cluster.store.view().get(paths.tc_sequence(0))
    assert record is not None
    assert TcSequence.of(record).next >= 60
    cluster.close()


def test_a_topic_has_as_many_segments_as_fit_its_record(tmp_path: Path) -> None:
    one = client(open_cluster(f"file://{tmp_path}/c"))
    name = topic_name("topic://" + "/".join(("tenant", "namespace", "name" * 10)))
    made = one.topics.create(name, segments=MAX_SEGMENTS)
    assert len(made.layout.segments) == MAX_SEGMENTS
    size = len(made.layout.to_bytes())
    with pytest.raises(OptionError, match=f"from 1 to {MAX_SEGMENTS}") as refused:
        one.topics.create(topic_name("more"), segments=MAX_SEGMENTS + 1)
    assert not isinstance(refused.value, ValueTooLarge)
    assert 3 * size < 768 * 1024, size  # the record has room for a split of every segment
    one.close()
