"""Tests of splits and merges: the seal in the log, the layout that shows the seal, and writers to a sealed segment (protocol.md
section 5, Sealing).
"""

from __future__ import annotations

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.client.client import Client
from metadata.common.errors import OptionError, SegmentSealed, UnknownOutcome
from metadata.read.reading import LogSelection
from metadata.records.names import RING, topic_name
from metadata.records.records import State
from metadata.topics.topics import Topic
from tests.support.bench import Bench, T, U

NAME = topic_name(T)


def tiles(topic: Topic) -> None:
    """Check that the active segments cover all hash values without a gap or an overlap (protocol.md section 8, invariant 13)."""
    at = 0
    for info in topic.active():
        assert info.hash_range.start == at
        at = info.hash_range.end + 1
    assert at == RING


def divide(party: Client) -> None:
    """Make the coordinator divide a part by registering its path in every child. The parts of the bench have no rows to divide."""
    party.coordinator.rewrite = lambda part, segment, key, to: [(target.segment, part) for target in to]


def test_a_segment_is_halved_and_joined_again() -> None:
    bench = Bench()
    topics = bench.party().topics
    split = topics.split(NAME, 0)
    tiles(split)
    assert [(i.segment_id, i.state.value, i.parent_ids, i.child_ids) for i in split.layout.kept()] == [
        (0, "SEALED", (), (2, 3)),
        (1, "ACTIVE", (), ()),
        (2, "ACTIVE", (0,), ()),
        (3, "ACTIVE", (0,), ()),
    ]
    merged = topics.merge(NAME, 3, 1)
    tiles(merged)
    assert merged.layout.epoch == 2
    assert merged.layout.segments["4"].parent_ids == (3, 1)
    assert (merged.layout.segments["4"].hash_range.start, merged.layout.segments["4"].hash_range.end) == (0x4000, 0xFFFF)


def test_an_impossible_split_or_merge_is_refused_with_its_reason() -> None:
    bench = Bench()
    topics = bench.party().topics
    topics.split(NAME, 0)
    with pytest.raises(OptionError, match=r"no segment 9.*active segments are: 2, 3, 1"):
        topics.split(NAME, 9)
    with pytest.raises(SegmentSealed, match=r"0000-7fff-0 was sealed at \d+, its children are \(2, 3\)"):
        topics.split(NAME, 0)
    with pytest.raises(OptionError, match="neither halved nor joined"):
        topics.merge(NAME, 2, 1)
    with pytest.raises(OptionError, match="neither halved nor joined"):
        topics.merge(NAME, 2, 2)


@pytest.mark.parametrize("fate", [Fate.CRASH_AFTER, Fate.CRASH_BEFORE, Fate.LOSE_REPLY, Fate.LOSE_REQUEST, Fate.LATE])
@pytest.mark.parametrize("step", range(4))
def test_a_split_broken_off_anywhere_is_repaired_by_the_next_call(step: int, fate: Fate) -> None:
    bench = Bench()
    writes = iter(range(100))

    def gate(kind: str, what: str) -> Fate:
        return fate if kind == "write" and next(writes) == step else Fate.GO

    try:
        bench.party(gate).topics.split(NAME, 0)
        told = True
    except (Crashed, UnknownOutcome):
        told = False
    party = bench.party()
    party.sweeper.sweep()
    now = party.topics.get(NAME)
    tiles(now)
    if told or now.layout.epoch:
        assert now.layout.segments["0"].child_ids == (2, 3)
        assert now.layout.epoch == 1
    else:
        assert party.topics.split(NAME, 0).layout.segments["0"].child_ids == (2, 3)
    bench.party().coordinator.commit(bench.work(1))
    assert bench.read()


def split_during_another(bench: Bench, segment: int, *, other: int) -> Topic:
    """Split a segment. Another process splits the segment `other` right before the seal of the first split is appended."""
    second = bench.party()
    interrupted = []

    def gate(kind: str, what: str) -> Fate:
        if kind == "write" and what.startswith("Append /log/") and not interrupted:
            interrupted.append(True)
            second.topics.split(NAME, other)
        return Fate.GO

    return bench.party(gate).topics.split(NAME, segment)


def test_two_splits_planned_from_one_layout_lose_no_range() -> None:
    """The second seal names the epoch of a layout that the first seal has already changed. So the second seal is void, and its
    split starts over. Guards against failure A35 (protocol.md section 9).
    """
    bench = Bench()
    after = split_during_another(bench, 0, other=1)
    tiles(after)
    assert after.layout.epoch == 2
    assert [i.segment_id for i in after.active()] == [4, 5, 2, 3]
    bench.party().sweeper.sweep()
    tiles(bench.party().topics.get(NAME))


def test_two_concurrent_splits_of_a_segment_split_it_once() -> None:
    """Both splits start from the same layout, and both return the same two children."""
    bench = Bench()
    after = split_during_another(bench, 0, other=0)
    tiles(after)
    assert [i.segment_id for i in after.active()] == [2, 3, 1]


@pytest.mark.parametrize("when", ["Put /txn/id/", "Append /log/", "Put /txn/op/"])
def test_a_writer_that_meets_a_seal_writes_to_the_children(when: str) -> None:
    """A seal precedes the step `when` of a commit. The commit loses and duplicates no row, and leaves no header OPEN. Guards
    against failure A24 (protocol.md section 9).
    """
    bench = Bench()
    splitter = bench.party()
    interrupted = []

    def gate(kind: str, what: str) -> Fate:
        if kind == "write" and what.startswith(when) and not interrupted:
            interrupted.append(True)
            splitter.topics.split(NAME, 0)
        return Fate.GO

    owner = bench.party(gate)
    divide(owner)
    committed = owner.coordinator.commit(bench.work(1))
    assert not committed.skipped
    rows = bench.read()
    expected = (
        {"0000-7fff-0", "8000-ffff-1", "0000-ffff-0"} if when == "Put /txn/op/" else {"0000-3fff-2", "8000-ffff-1", "0000-ffff-0"}
    )
    assert {row.segment.rpartition("/")[2] for row in rows} == expected
    assert set(bench.headers().values()) <= {State.COMMITTED, State.ABORTED}
    assert bench.party().coordinator.commit(bench.work(1)).skipped


def test_parts_staged_before_several_splits_and_a_merge_find_their_way() -> None:
    bench = Bench()
    work = bench.work(1, topics=(T, U))
    topics = bench.party().topics
    topics.split(NAME, 0)
    topics.split(NAME, 2)
    topics.merge(NAME, 3, 1)
    topics.split(topic_name(U), 0)
    topics.merge(topic_name(U), 1, 2)
    bench.party().coordinator.commit(work)
    rows = bench.read()
    assert {row.segment.rpartition("/")[2] for row in rows} == {"0000-1fff-4", "4000-ffff-6", "0000-ffff-3"}
    assert len(rows) == 3


def test_entries_above_a_seal_block_no_reader() -> None:
    """A registration above a seal is void even while its transaction is OPEN, so no reader waits for it (protocol.md section 6,
    first line of the table).
    """
    bench = Bench()
    work = bench.work(1, topics=(T,))
    splitter = bench.party().topics
    interrupted = []

    def gate(kind: str, what: str) -> Fate:
        if kind == "write" and what.startswith("Append /log/") and not interrupted:
            interrupted.append(True)
            splitter.merge(NAME, 0, 1)
        elif interrupted:
            return Fate.CRASH_BEFORE
        return Fate.GO

    with pytest.raises(Crashed):
        bench.party(gate).coordinator.commit(work)
    assert State.OPEN in bench.headers().values()
    bench.party().coordinator.commit(bench.work(2, topics=(T,), app="other"))
    reading = bench.party().buffer.read(LogSelection((T,)))
    assert not reading.undecided
    assert reading.cut == reading.end_of_log == 3
    assert bench.party().buffer.read(LogSelection((T, U))).cut == 3
    bench.finish()


def test_a_stream_ends_a_micro_batch_at_the_seal() -> None:
    """Rows of a child never share a micro-batch with rows of its parent (protocol.md section 8, invariant 13)."""
    bench = Bench()
    party = bench.party()
    party.coordinator.commit(bench.work(1, topics=(T,)))
    party.topics.split(NAME, 0)
    party.coordinator.commit(bench.work(2, topics=(T,)))
    party.sweeper.sweep()
    reading = bench.party().buffer.read(LogSelection((T,)))
    (seal,) = reading.seals(0, reading.cut)
    parents = [ledger.id for s in reading.segments if s.info.segment_id == 0 for ledger in s.ledgers(0, reading.cut)]
    children = [ledger.id for s in reading.segments if s.info.segment_id > 1 for ledger in s.ledgers(0, reading.cut)]
    assert max(parents) < seal < min(children)
