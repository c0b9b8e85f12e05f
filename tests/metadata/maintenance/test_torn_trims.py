"""Retention trims whole transactions. A trim ends at one log number for all segments of a topic. Even while only some segments are
trimmed, readers show each transaction whole or not at all (protocol.md section 7).
"""

from __future__ import annotations

from collections import Counter

import pytest
from test_trimming import DAY, filled, keep, segments, subscriptions, trim

from conformance.simulator.store.faults import Crashed, Fate
from metadata.common.errors import DataLoss, TxnSegmentError
from metadata.maintenance.trimming import Trimmed, Trimmer
from metadata.read.backlog import all_rows
from metadata.read.reading import LogSelection, Reading
from metadata.read.selection import AtLog, Earliest
from metadata.records.names import topic_name
from metadata.records.records import Position, Watermark
from metadata.records.row_ranges import NONE, before, end_of, minus
from metadata.rules.acks import Ack, up_to
from metadata.rules.retention import without_drained
from metadata.topics.policies import set_for_topic
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.losses import check_cursors, check_trims, hidden, known_trims
from tests.support.bench import At, Bench, T, U


def reading(bench: Bench, *names: str) -> Reading:
    return bench.party().buffer.read(LogSelection(names or (T,)))


def from_earliest(bench: Bench, *names: str) -> Counter[int]:
    """Return for each log number in how many segments a batch from `earliest` finds rows of this number."""
    found = reading(bench, *names)
    known = known_trims(found, Earliest())
    check_trims(LogRange(found, 0, found.cut), known)
    gone = hidden(found, known)
    shown = [(s.name, ledger) for s in found.segments for ledger in s.ledgers(0, found.cut)]
    return Counter(ledger.id for name, ledger in shown if minus(all_rows(ledger), gone.get(name, NONE)))


def numbers(bench: Bench) -> list[int]:
    found = reading(bench)
    return sorted({ledger.id for s in found.segments for ledger in s.ledgers(0, found.cut)})


def acked_in_one_segment(bench: Bench, held: int = 0) -> list[int]:
    """Create a subscription. In the segment `held` it has acknowledged only the rows of the first log number, in the other segment
    all rows. Return the log numbers of all rows.
    """
    found = numbers(bench)
    subscriptions(bench).create(topic_name(T), "s", at=0)
    for place, segment in enumerate(segments(bench)):
        last = found[0] if place == held else found[-1]
        bench.party().coordinator.acks.acknowledge([up_to(segment, "s", end_of(last))])
    return found


@pytest.mark.parametrize("held", [0, 1])
def test_a_row_that_a_subscription_needs_in_one_segment_holds_back_all_segments(held: int) -> None:
    bench = filled()
    found = acked_in_one_segment(bench, held)
    set_for_topic(bench.party().cluster, topic_name(T), {"retention_bytes": 1})
    trim(bench.party())
    assert from_earliest(bench) == dict.fromkeys(found[1:], 2), "each transaction has rows in both segments"
    assert set(reading(bench).trims().values()) == {found[0]}


def test_a_fully_acknowledged_segment_holds_no_trim_back() -> None:
    """The cursor of the sealed segment stays at the segment's last row, while the cursors of the other segments advance. A trim
    then removes all rows.
    """
    bench = filled(2)
    found = numbers(bench)
    subscriptions(bench).create(topic_name(T), "s", at=found[-1])
    bench.party().topics.split(topic_name(T), 0)
    for version in (4, 5):
        bench.party().coordinator.commit(bench.work(version))
    bench.party().sweeper.sweep()
    bench.party().coordinator.acks.acknowledge(
        [up_to(s, "s", end_of(10**6)) for s in list(bench.party().topics.get(topic_name(T)).segments())[1:]]
    )
    bench.clock.now += DAY
    keep(bench, 0.001)
    trim(bench.party())
    assert numbers(bench) == []


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
def test_earliest_shows_whole_transactions_during_a_trim(fate: Fate) -> None:
    k = half = 0
    while True:
        bench = filled(3)
        keep(bench, 1.5)
        gate = At(k, fate)
        try:
            trim(bench.party(gate))
        except (Crashed, TxnSegmentError):
            assert gate.hit
        found = reading(bench)
        half += len({s.trimmed_to for s in found.segments}) > 1
        assert set(from_earliest(bench).values()) == {2}
        if not gate.hit:
            break
        k += 1
    assert half, "no crash left one segment trimmed and the other not"


def half_trimmed() -> tuple[Bench, list[int]]:
    """Return a bench on which a trimmer crashed between two segments, and the four log numbers of the rows. Only one of the
    segments is trimmed, up to the second number.
    """
    k = 0
    while True:
        bench = filled()
        found = numbers(bench)
        keep(bench, 2.5)
        with pytest.raises((Crashed, TxnSegmentError)):
            trim(bench.party(At(k, Fate.CRASH_AFTER)))
        if {s.trimmed_to for s in reading(bench).segments} == {0, found[1]}:
            return bench, found
        k += 1


def test_finishing_a_trim_spares_rows_due_to_a_stream_from_earliest() -> None:
    """A stream starts while only one segment is trimmed, and then the trim is finished. Rows that were hidden when the stream
    started do not count as lost.
    """
    bench, found = half_trimmed()
    known = known_trims(reading(bench), Earliest())
    trim(bench.party())
    after = reading(bench)
    assert set(after.trims().values()) == {found[1]}
    check_trims(LogRange(after, 0, after.cut), known)


def test_a_removed_trimmed_segment_is_no_loss_for_a_stream_started_after_it() -> None:
    bench = filled()
    party = bench.party()
    party.topics.split(topic_name(T), 0)
    party.sweeper.sweep()
    keep(bench, 0.001)
    trim(party)
    known = known_trims(reading(bench), Earliest())
    bench.clock.now += bench.settings.grace_period_ms + 1
    assert trim(bench.party()).left == 1
    after = reading(bench)
    assert after.guards()
    check_trims(LogRange(after, 0, after.cut), known)


def test_a_start_below_a_half_done_trim_is_an_error() -> None:
    bench, found = half_trimmed()
    now = reading(bench)
    with pytest.raises(DataLoss):
        check_trims(LogRange(now, found[0], now.cut), known_trims(now, AtLog(found[0])))
    check_trims(LogRange(now, found[1], now.cut), known_trims(now, AtLog(found[1])))


def test_a_subscription_made_while_a_trim_is_half_done_begins_at_the_first_whole_transaction() -> None:
    bench, found = half_trimmed()
    here = subscriptions(bench)
    here.create(topic_name(T), "new", at=0)
    here.create(topic_name(T), "moved", at=found[3])
    here.seek(topic_name(T), "moved", to=0)
    topic = bench.party().topics.get(topic_name(T))
    for name in ("new", "moved"):
        for cursor in here.cursors(topic, name).values():
            assert cursor.mark_delete is not None
            assert cursor.mark_delete.ledger_id == found[1]
    now = reading(bench)
    check_cursors(now, {s: before(end_of(found[1])) for s in segments(bench)}, "new")


def unevenly(bench: Bench, segment: str, to: int) -> None:
    """Trim only this segment, as trims did before they used one number for all segments."""
    party = bench.party()
    Trimmer(party.cluster, party.buffer)._trim_segment(segment, to, Trimmed())


def test_an_earlier_uneven_trim_leaves_whole_transactions_readable() -> None:
    bench = filled()
    found = acked_in_one_segment(bench)
    unevenly(bench, segments(bench)[1], found[2])
    assert from_earliest(bench) == {found[3]: 2}
    first = segments(bench)[0]
    assert [ledger.id for ledger in reading(bench, first).segments[0].ledgers(0, 10**9)] == found, (
        "a read of one segment has all rows that this segment still has"
    )
    assert from_earliest(bench, first) == dict.fromkeys(found, 1)
    bench.party().coordinator.acks.acknowledge([Ack(first, "s", ((end_of(found[0]), end_of(found[1])),))])
    set_for_topic(bench.party().cluster, topic_name(T), {"retention_bytes": 1})
    trim(bench.party())
    assert set(reading(bench).trims().values()) == {found[1], found[2]}, "the first segment is trimmed further"


def test_the_trim_guard_of_a_topic_survives_the_removal_of_a_less_trimmed_segment() -> None:
    def mark(number: int) -> Watermark:
        return Watermark(ledger_id=9, entry_id=0, trimmed_to=Position(ledger_id=number, entry_id=0), trimmed_ms=number)

    bench = Bench()
    layout = bench.party().topics.get(topic_name(T)).layout
    once = without_drained(layout, {0: mark(7)})
    twice = without_drained(once, {1: mark(5)})
    assert (twice.trimmed_to, twice.trimmed_ms) == (Position(ledger_id=7, entry_id=0), 7)


def test_a_recreated_topic_has_no_earlier_subscription() -> None:
    bench = filled(1)
    subscriptions(bench).create(topic_name(T), "s", at=0)
    bench.party().topics.delete(topic_name(T))
    bench.party().topics.create(topic_name(T))
    assert subscriptions(bench).list(topic_name(T)) == []


def test_two_topics_are_trimmed_independently() -> None:
    """A transaction may write to several topics. Its rows in each topic follow that topic's retention (protocol.md section 7)."""
    bench = Bench()
    for version in (1, 2):
        bench.party().coordinator.commit(bench.work(version, topics=(T, U)))
        bench.party().sweeper.sweep()
        bench.clock.now += DAY
    bench.party().coordinator.commit(bench.work(3, topics=(T, U)))
    bench.party().sweeper.sweep()
    keep(bench, 0.001)
    bench.clock.now += DAY
    trim(bench.party())
    of = {name: list(from_earliest(bench, name)) for name in (T, U)}
    assert of[T] == []
    assert len(of[U]) >= 2
    assert list(from_earliest(bench, T, U)) == of[U]
