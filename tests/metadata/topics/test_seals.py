"""Seals of deletions, and seals of splits and merges that a later version of the product has written. Every version of the product
honours a seal. Only a version that knows the kind of the seal finishes it.
"""

from __future__ import annotations

import pytest

from metadata.client.passes import delete_orphans
from metadata.common.errors import SegmentSealed
from metadata.read.reading import LogSelection
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.records.records import Layout, Registration
from tests.support.bench import Bench, T, U


def _layout(bench: Bench, topic: str) -> Layout:
    record = bench.party().cluster.store.view().get(paths.topic(topic_name(topic)))
    assert record is not None
    return Layout.of(record)


def _seal(bench: Bench, topic: str, why: str, children: tuple[int, ...], count: int = 1) -> int:
    """Append a seal of the first `count` segments, as a process does that crashes before it changes the layout."""
    party = bench.party()
    found = party.topics.get(topic_name(topic))
    seal = Registration(
        publish_ms=1, seal=tuple(found.segments()[:count]), topic=topic, why=why, epoch=found.layout.epoch, children=children
    )
    return party.cluster.store.append(paths.LOG, seal.to_bytes()).number


def test_a_seal_of_a_newer_version_is_honoured_and_destroys_nothing() -> None:
    bench = Bench()
    bench.party().coordinator.commit(bench.work(1))
    before, rows = _layout(bench, T), bench.read()
    number = _seal(bench, T, "rebucket", (7,))
    party = bench.party()
    with pytest.raises(SegmentSealed, match="does not know"):
        party.coordinator.commit(bench.work(2))
    party.coordinator.commit(bench.work(2, topics=(U,)))
    for _ in range(3):
        assert party.sweeper.sweep().seals_finished == 0
    assert _layout(bench, T) == before
    assert set(rows) <= set(bench.read())
    reading = bench.party().buffer.read(LogSelection((T, U)))
    assert reading.seals(0, reading.cut) == [number]
    assert paths.LOG.key(number) in {r.key for r in party.cluster.store.view().scan(paths.LOG.range())}


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("made_again", [False, True])
def test_the_files_of_a_deleted_topic_stay_for_the_grace_period(made_again: bool, folded: bool) -> None:
    bench = Bench()
    work = bench.work(1, topics=(U,))
    party = bench.party()
    party.coordinator.commit(work)
    (part,) = [p.path for parts in work.parts.values() for p in parts]
    if folded:
        party.sweeper.sweep()
    party.topics.delete(topic_name(U))
    if made_again:
        party.topics.create(topic_name(U))
    bench.old()
    party.sweeper.sweep()
    # this commit is needed so that the seal is not the newest record of the log
    party.coordinator.commit(bench.work(2, topics=(T,)))
    party.sweeper.sweep()
    bench.clock.now += max(bench.settings.orphan_age_ms, bench.settings.grace_period_ms // 2) + 1
    delete_orphans(party.cluster)
    assert part in bench.disk.files
    assert _layout(bench, U).gone()
    bench.clock.now += bench.settings.grace_period_ms + 1
    delete_orphans(party.cluster)
    assert part not in bench.disk.files
    after = _layout(bench, U)
    assert (after.gone(), len(after.segments), after.deleted) == ([], int(made_again), None if made_again else True)
    assert after.deleted_to_log is not None
    again = _layout(bench, U)
    delete_orphans(party.cluster)
    assert _layout(bench, U) == again


def test_deleting_and_making_again_many_times() -> None:
    """A topic is deleted and created again several times. Its segment ids increase, and its layout does not grow. `deleted_to_log`
    is the number of the newest deletion whose segments have left the layout.
    """
    bench = Bench()
    party = bench.party()
    guards: list[int] = []
    for version in range(1, 4):
        party.coordinator.commit(bench.work(version, topics=(U,)))
        party.topics.delete(topic_name(U))
        party.topics.create(topic_name(U))
        bench.clock.now += bench.settings.grace_period_ms + 1
        delete_orphans(party.cluster)
        layout = _layout(bench, U)
        assert list(layout.segments) == [str(version)]
        assert layout.deleted_to_log is not None
        guards.append(layout.deleted_to_log)
    assert guards == sorted(set(guards))
