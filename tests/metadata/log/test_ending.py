"""All callers end a transaction by one function. A second call publishes the events again (protocol.md section 8, invariant 2)."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.client.client import shared_client
from metadata.common import metrics
from metadata.common.errors import TxnConflict, TxnSegmentError
from metadata.log import ending
from metadata.records import paths
from metadata.records.records import Header, State
from metadata.store.contract import Record
from tests.support.bench import At, Bench


def counted() -> dict[str, float]:
    return {r: metrics.HEADER_CAS.labels(result=r)._value.get() for r in ("ok", "conflict", "reject")}


def since(before: dict[str, float]) -> dict[str, float]:
    return {result: now - before[result] for result, now in counted().items() if now != before[result]}


def dead_before_deciding(bench: Bench) -> Record:
    """Return the header of a transaction whose owner crashed after writing the op records."""
    with pytest.raises(Crashed):
        bench.party(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1))
    ((txn, state),) = bench.headers().items()
    assert state is State.OPEN
    record = bench.party().cluster.store.view().get(paths.header(txn))
    assert record is not None
    return record


def test_ending_counts_each_try_once() -> None:
    bench = Bench()
    record = dead_before_deciding(bench)
    store = bench.party().cluster.store
    before = counted()
    ended = ending.end(store, record, State.ABORTED, now_ms=1)
    assert ended is not None
    assert ended.state is State.ABORTED
    assert since(before) == {"ok": 1}
    assert ending.end(store, record, State.ABORTED, now_ms=1) is None
    assert since(before) == {"ok": 1, "conflict": 1}
    now = store.view().get(record.key)
    assert now is not None
    assert ending.end(store, now, State.ABORTED, now_ms=2) == Header.of(now)
    with pytest.raises(TxnConflict):
        ending.end(store, now, State.COMMITTED, now_ms=2, commit=1)
    assert since(before) == {"ok": 1, "conflict": 1, "reject": 1}


@pytest.mark.parametrize("who", ["sweeper", "reader", "successor", "owner"])
def test_an_abort_by_another_process_is_counted_by_its_reason(who: str) -> None:
    bench = Bench()
    record = dead_before_deciding(bench)
    before = counted()
    if who in ("sweeper", "reader"):
        bench.late()
    if who == "sweeper":
        assert bench.party().sweeper.timeouts() == 1
    elif who == "reader":
        assert bench.read() == []
    elif who == "successor":
        bench.party().coordinator.commit(bench.work(1))
    else:
        bench.party().coordinator.abort(record.key.partition)
    # the later attempt also commits its own transaction, so two transactions have ended
    assert since(before) == {"ok": 2 if who == "successor" else 1}
    assert bench.headers()[record.key.partition] is State.ABORTED


def test_an_abort_publishes_an_event_for_every_segment_at_each_try() -> None:
    bench = Bench()
    txn = dead_before_deciding(bench).key.partition
    assert not bench.kept("/txn/segment-events/")
    bench.party().coordinator.abort(txn)
    assert len(bench.kept("/txn/segment-events/")) == 3
    bench.party().coordinator.abort(txn)
    assert len(bench.kept("/txn/segment-events/")) == 6
    bench.finish()


def test_an_unanswering_cluster_delays_no_other_cluster(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        failed: list[BaseException] = []

        def opens() -> None:
            try:
                shared_client(f"zk://127.0.0.1:{silent.getsockname()[1]}/silent")
            except TxnSegmentError as error:
                failed.append(error)

        waiting = threading.Thread(target=opens)
        waiting.start()
        connection, _ = silent.accept()  # the connecting thread now waits for an answer
        other = shared_client(f"file://{tmp_path}/c")
        assert waiting.is_alive()
        assert shared_client(f"file://{tmp_path}/c") is other
        connection.close()
    waiting.join(60)
    assert failed
