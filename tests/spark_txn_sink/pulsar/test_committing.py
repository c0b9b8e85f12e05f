"""The commit protocol on a model of a broker. Each version is committed once, although drivers are killed and suspended, and
requests and replies are lost or late. The last driver leaves no transaction of an earlier one open. Each planted fault is detected.
"""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import ConnectionLost, LogDamaged, PulsarError, broker_error
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar import committing, control
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.committing import Committer
from spark_txn_sink.pulsar.control import Begin, Done, Record, Recovery, Take, encode
from spark_txn_sink.pulsar.ends import Ends, NotCommitted, OutcomeUnknown
from spark_txn_sink.pulsar.work import Control, Work
from tests.support.pulsar_control_model import LEDGER, PATIENCE, ModelControl, World, simulate

SEEDS = 1_000
VERSIONS = 6


def wrong(seed: int, **planted: Any) -> str:
    """Run one schedule. Return what is wrong with its result, or an empty text."""
    try:
        world = simulate(seed, **planted)
    except (LogDamaged, AssertionError) as error:
        return str(error)
    counts = world.committed()
    expected = dict.fromkeys(range(VERSIONS + 1), 1)
    if counts != expected:
        return f"committed: {dict(counts)}"
    return f"left open: {world.left_open()}" if world.left_open() else ""


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "CHECKPOINT_EVERY", 5)


def test_each_version_is_committed_once() -> None:
    found = {seed: text for seed in range(SEEDS) if (text := wrong(seed))}
    assert found == {}


def test_each_version_is_committed_once_although_the_broker_does_not_fence() -> None:
    """The broker 5.0.0-M1 accepts both of two fencing producers that are opened at the same time."""
    assert {seed: text for seed in range(SEEDS) if "committed" in (text := wrong(seed, control=NoFence))} == {}


def test_many_schedules_have_takeovers_repeated_batches_checkpoints_and_aborts() -> None:
    """Without many such schedules, the other tests would say nothing about takeovers, repeated batches, checkpoints and aborts."""
    worlds = [simulate(seed) for seed in range(200)]
    assert sum(world.taken_over > 0 for world in worlds) > 20
    assert sum(world.skipped > 0 for world in worlds) > 20
    assert sum(world.kept_from >= 0 for world in worlds) > 20
    assert sum("aborted" in world.txns.values() for world in worlds) > 20


# --- planted faults ---


class DoneOutside(ModelControl):
    """Sends `done` as a plain record, outside of the transaction."""

    def append(self, record: Record, txn: TxnId | None = None) -> Position:
        return super().append(record, None)


class NoFence(ModelControl):
    """An earlier producer may go on writing."""

    def check_fence(self) -> None:
        if self.epoch < 0:
            raise ConnectionLost("The producer was closed.")


class Pipelined(ModelControl):
    """`begin` and `done` are in flight together, and arrive in the other order."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._flying: list[Record] = []

    def append(self, record: Record, txn: TxnId | None = None) -> Position:
        if isinstance(record, Begin):
            self._flying = [record]
            return Position(1, len(self.world.log))
        place = super().append(record, txn)
        for one in self._flying:
            self._flying = []
            place = super().append(one)
        return place


class LosesStrays(ModelControl):
    """A read of the openings ends early without an error, as if there were no more."""

    def strays(self, opened: Opened) -> list[TxnId]:
        return super().strays(opened)[:-1]


class CheckpointFirst(Committer):
    """The checkpoint is written when `done` is sent, and not when its transaction has committed."""

    def _end(self, work: Work, found_done: Callable[[], bool | None]) -> None:
        assert self._state is not None
        before = self._state
        self._state = control.after(before, work.done)
        self._checkpoint()
        super()._end(work, found_done)
        self._state = before


class TrustsItself(Committer):
    """Counts a transaction as committed although the reply to its end was lost."""

    def _end(self, work: Work, found_done: Callable[[], bool | None]) -> None:
        try:
            self._control.end(work.txn, commit=True)
        except ConnectionLost:
            return


class NoGaps(Committer):
    """The committer does not notice records of other producers between its own."""

    def _follows(self, before: Position | None) -> bool:
        return True


def made(kind: type[Committer]) -> Callable[[Control, Callable[[float], None], Callable[[], float]], Committer]:
    return lambda over, pause, now: kind(over, pause=pause, now=now, patience=PATIENCE, at_once=0)


def skips_leftovers(recovery: Recovery) -> list[TxnId]:
    return []


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param({"control": DoneOutside}, id="done outside of the transaction"),
        pytest.param({"control": NoFence, "make": made(NoGaps)}, id="no fencing, and gaps are not seen"),
        pytest.param({"control": Pipelined}, id="pipelined sends"),
        pytest.param({"control": LosesStrays}, id="strays are lost"),
        pytest.param({"make": made(CheckpointFirst)}, id="checkpoint before the commit"),
        pytest.param({"make": made(TrustsItself)}, id="an unknown end counts as a commit"),
        pytest.param({"early_offset": True}, id="offset taken before the commit"),
    ],
)
def test_a_planted_fault_is_detected(planted: dict[str, Any]) -> None:
    assert any(wrong(seed, **planted) for seed in range(SEEDS))


def test_skipping_the_abort_of_leftovers_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "leftovers", skips_leftovers)
    assert any(wrong(seed) for seed in range(SEEDS))


# --- golden schedules ---


def alone(world: World) -> Committer:
    """Return a committer whose calls run to their end without a schedule and without faults."""
    return at_once(Instant(world))


def at_once(control: Control) -> Committer:
    return Committer(control, pause=lambda seconds: None, now=lambda: 0.0, patience=PATIENCE, at_once=0)


class Instant(ModelControl):
    """A control topic whose calls are no steps of a schedule, and have no faults."""

    def _step(self, work: Callable[[], Any]) -> Any:
        return work()


def work(world: World, version: int, run: str = "r1") -> Work:
    return Work(world.begin(version), run, version, "t", {}, 1, "app to t", streaming=True)


def fresh() -> World:
    return World(random.Random(0), 0.0)


def test_one_commit_writes_take_begin_and_done() -> None:
    world = fresh()
    one = work(world, 0)
    assert alone(world).commit(one)
    assert [data for data, _ in world.log] == [encode(Take("r1")), encode(Begin(one.txn, 0, "r1")), encode(one.done)]
    assert [txn for _, txn in world.log] == [None, None, one.txn]
    assert world.txns == {one.txn: "committed"}


def test_nothing_is_committed_before_it_is_recorded_where_the_rows_are() -> None:
    world = fresh()
    one = work(world, 0)
    seen: list[str] = []
    assert alone(world).commit(one, lambda: seen.append(world.txns[one.txn]))
    assert seen == ["open"]
    assert world.txns == {one.txn: "committed"}


def test_a_version_whose_places_could_not_be_recorded_is_aborted() -> None:
    world = fresh()
    one = work(world, 0)

    def fails() -> None:
        raise ConnectionLost("The log is away.", advice="Wait.")

    with pytest.raises(NotCommitted, match="The log is away"):
        alone(world).commit(one, fails)
    assert world.txns == {one.txn: "aborted"}
    assert alone(world).commit(work(world, 0))


class WithStrays(Instant):
    """A control topic whose application opened transactions earlier (`strayed`). `ended`: the transactions that a driver ended."""

    def __init__(self, world: World, strayed: list[TxnId]) -> None:
        super().__init__(world)
        self.strayed, self.ended = strayed, list[TxnId]()

    def strays(self, opened: Opened) -> list[TxnId]:
        return self.strayed

    def passed(self, opened: Opened) -> None:
        self.strayed = []

    def end(self, txn: TxnId, *, commit: bool) -> None:
        self.ended.append(txn)
        super().end(txn, commit=commit)


def test_a_new_driver_ends_each_earlier_transaction_once() -> None:
    world = fresh()
    done, left, own = work(world, 0), world.begin(1), work(world, 1, "r2")
    assert alone(world).commit(done)
    control = WithStrays(world, [done.txn, left])
    assert at_once(control).commit(dataclasses.replace(own, opened=opened(own)))
    assert control.ended == [done.txn, own.txn, left], "the stray is aborted when the version is decided"
    assert world.txns == {done.txn: "committed", left: "aborted", own.txn: "committed"}


class Damaged(Instant):
    """A control topic whose writers' log has a record that no txnsegment has written."""

    def strays(self, opened: Opened) -> list[TxnId]:
        raise LogDamaged("topic://a/b/log: a record cannot be read: b'junk'", advice="Find out who wrote the record.")


def test_a_damaged_log_of_openings_fails_no_version_that_is_committed(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in its commit, nor in its replays, which are skipped."""
    world = fresh()
    for run, committed in (("r1", True), ("r2", False)):
        one = work(world, 0, run)
        with caplog.at_level(logging.WARNING):
            assert at_once(Damaged(world)).commit(dataclasses.replace(one, opened=opened(one))) == committed
        assert "topic://a/b/log: a record cannot be read" in caplog.text
        caplog.clear()
    assert world.committed() == {0: 1}


def opened(one: Work) -> Opened:
    return Opened(one.txn, "segment", Position(0, 9))


class Unreadable(Instant):
    """A control topic that gets a record that no txnsegment has written when `damaged` is set."""

    damaged = False

    def read(self, to: Position | None = None) -> Iterator[tuple[Position, Record]]:
        if self.damaged:
            raise LogDamaged("A record cannot be read: b'junk'", advice="Find out who wrote the record.")
        yield from super().read(to)


def test_a_version_that_was_aborted_is_called_so_although_the_control_topic_is_damaged() -> None:
    world = fresh()
    control, one = Unreadable(world), work(world, 0)
    committer = at_once(control)
    assert committer.begin(one)
    world.end(one.txn, "aborted")
    control.damaged = True
    with pytest.raises(NotCommitted, match="was aborted before its commit") as raised:
        committer.finish(one)
    assert "could not be read: A record cannot be read: b'junk'" in str(raised.value.__cause__.__notes__)


def test_an_outcome_that_a_damaged_control_topic_hides_is_called_unknown() -> None:
    """The coordinator has forgotten the transaction, so only the control topic could tell the outcome."""
    world = fresh()

    class ForgetsAndDamaged(Forgets, Unreadable):
        pass

    def damages() -> None:
        damaged.damaged = True

    damaged = ForgetsAndDamaged(world, damages)
    with pytest.raises(OutcomeUnknown, match=r"version 0 of app to t was committed.*A record cannot be read") as raised:
        at_once(damaged).commit(work(world, 0))
    assert world.committed() == {0: 1}
    assert "Find out who wrote the record." in raised.value.advice


def test_a_driver_that_waits_for_its_turn_keeps_its_transaction() -> None:
    """Two programs of one application are about to commit. The one that takes over last commits, whichever has begun first."""
    world = fresh()
    early, late = work(world, 0, "early"), work(world, 0, "late")
    first, second = WithStrays(world, [early.txn]), Instant(world)
    committers = at_once(first), at_once(second)
    assert committers[0].begin(dataclasses.replace(late, opened=opened(late)))
    assert committers[1].commit(early)
    with pytest.raises(control.TakenOver):
        committers[0].finish(late)
    assert world.txns == {early.txn: "committed", late.txn: "aborted"}


def test_a_driver_whose_producer_was_ended_does_not_end_that_of_its_successor() -> None:
    """Otherwise each of the two drivers could end the producer of the other one before it commits."""
    world = fresh()
    early, late = work(world, 0, "early"), work(world, 0, "late")
    first, second = Instant(world), Instant(world)
    successor = at_once(second)

    class Interrupted(Instant):
        def append(self, record: Record, txn: TxnId | None = None) -> Position:
            if isinstance(record, Begin) and second.epoch < 0:
                assert successor.begin(late)
            return super().append(record, txn)

    with pytest.raises(control.TakenOver):
        at_once(Interrupted(world)).commit(early)
    assert successor.finish(late)
    assert [type(control.decode(data)) for data, _ in world.log] == [Take, Take, Begin, Done]
    assert first.epoch < 0


def test_a_done_that_the_broker_writes_after_the_take_of_a_successor_is_found() -> None:
    """A broker checks the producer of a `done`, writes a record of its own, and then writes the `done` without another check. A
    successor may take over in between. Then its `take` is in the log before the `done` of the earlier driver.
    """
    world = fresh()
    one, again = work(world, 0, "r1"), work(world, 0, "r2")
    assert at_once(Instant(world)).begin(one)
    world.write(encode(Take("r2")), None)
    world.write(encode(one.done), one.txn)
    world.end(one.txn, "committed")

    class Owns(Instant):
        def take(self, run: str) -> Position:
            self.epoch = self.world.epoch = 2
            return Position(LEDGER, 2)

    assert not at_once(Owns(world)).commit(again)
    assert world.committed() == {0: 1}


def test_a_transaction_that_another_program_has_aborted_tells_what_became_of_its_version() -> None:
    world = fresh()
    mine, twin, later = work(world, 0, "mine"), work(world, 0, "twin"), work(world, 3, "later")
    committer = at_once(Instant(world))
    assert committer.begin(mine)
    world.end(mine.txn, "aborted")
    assert alone(world).commit(twin)
    with pytest.raises(control.TakenOver, match="Another driver of app to t has taken over"):
        committer.finish(mine)
    assert alone(world).commit(dataclasses.replace(later, streaming=False))
    with pytest.raises(control.VersionRefused, match="below the committed version 3"):
        at_once(Instant(world)).commit(work(world, 0, "again"))


def test_the_next_version_needs_no_take_and_no_read() -> None:
    world = fresh()
    committer = alone(world)
    committer.commit(work(world, 0))
    reads = world.reads
    committer.commit(work(world, 1))
    assert [type(control.decode(data)) for data, _ in world.log][:5] == [Take, Begin, Done, Begin, Done]
    assert world.reads == reads


def test_a_repeated_batch_of_a_new_run_is_skipped_and_its_transaction_aborted() -> None:
    world = fresh()
    alone(world).commit(work(world, 0))
    again = work(world, 0, "r2")
    assert not alone(world).commit(again)
    assert world.txns[again.txn] == "aborted"
    assert world.committed() == {0: 1}


def test_a_driver_that_was_replaced_is_told_and_its_successor_goes_on() -> None:
    world = fresh()
    first, second = alone(world), alone(world)
    first.commit(work(world, 0, "r1"))
    second.commit(work(world, 1, "r2"))
    with pytest.raises(control.TakenOver):
        first.commit(work(world, 1, "r1"))
    assert second.commit(work(world, 2, "r2")), "the successor takes over again, since its producer was fenced"
    assert world.committed() == {0: 1, 1: 1, 2: 1}


def test_two_processes_of_one_run_take_turns() -> None:
    """Spark may commit the batches of one query in several processes."""
    world = fresh()
    processes = [alone(world), alone(world)]
    for version in range(6):
        assert processes[version % 2].commit(work(world, version))
    assert world.committed() == dict.fromkeys(range(6), 1)


def test_a_transaction_that_timed_out_is_an_error_and_the_batch_can_run_again() -> None:
    world = fresh()
    committer = alone(world)
    one = work(world, 0)
    world.end(one.txn, "aborted")
    with pytest.raises(NotCommitted):
        committer.commit(one)
    assert alone(world).commit(work(world, 0, "r2"))
    assert world.committed() == {0: 1}


class Away(Instant):
    """A coordinator that answers to the first commit only if `carried_out`, and has then forgotten the transaction or is away."""

    def __init__(self, world: World, *errors: PulsarError) -> None:
        super().__init__(world)
        self.errors = list(errors)

    def end(self, txn: TxnId, *, commit: bool) -> None:
        if commit and self.errors:
            raise self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        super().end(txn, commit=commit)


def impatient(control: Control) -> Committer:
    """Return a committer that gives up at its third request."""
    times = iter(range(1_000))
    return Committer(control, pause=lambda seconds: None, now=lambda: float(next(times)), patience=1.0, at_once=0)


LOST = ConnectionLost("The connection broke.")
FORGOTTEN = broker_error(24, "unknown", "end txn")


@pytest.mark.parametrize("errors", [(LOST,), (LOST, FORGOTTEN)])
def test_a_write_without_an_application_whose_outcome_is_unknown_is_not_called_repeatable(errors: tuple[PulsarError, ...]) -> None:
    """Its repetition writes the rows again, also if the first try was committed."""
    world = fresh()
    times = iter(range(1_000))
    ends = Ends(Away(world, *errors).end, pause=lambda seconds: None, now=lambda: float(next(times)), patience=1.0)
    with pytest.raises(OutcomeUnknown, match="unknown whether app to t was committed") as raised:
        ends.commit_alone(work(world, 0))
    assert "Look for its rows before you write it again" in raised.value.advice
    assert "nothing twice" not in raised.value.advice


def test_a_version_whose_outcome_is_unknown_is_learned_by_the_next_run() -> None:
    world = fresh()
    one = work(world, 0)
    committer = impatient(Away(world, LOST))
    with pytest.raises(OutcomeUnknown, match="unknown whether version 0 of app to t was committed") as raised:
        committer.commit(one)
    assert "The next run learns it and writes nothing twice" in raised.value.advice


class Forgets(Instant):
    """A coordinator that carries the first commit out, loses the reply, and has forgotten the transaction after that. Between the
    two, `meanwhile` happens.
    """

    def __init__(self, world: World, meanwhile: Callable[[], None]) -> None:
        super().__init__(world)
        self.meanwhile, self.commits = meanwhile, 0

    def end(self, txn: TxnId, *, commit: bool) -> None:
        if not commit:
            return super().end(txn, commit=commit)
        self.commits += 1
        if self.commits > 1:
            raise FORGOTTEN
        super().end(txn, commit=commit)
        self.meanwhile()
        raise LOST


def test_the_outcome_is_unknown_if_the_coordinator_has_forgotten_the_transaction_and_the_log_cannot_be_read() -> None:
    world = fresh()

    class Unreadable(Forgets):
        def take(self, run: str) -> Position:
            if self.commits:
                raise LOST
            return super().take(run)

    with pytest.raises(OutcomeUnknown, match="unknown whether version 0 of app to t was committed"):
        at_once(Unreadable(world, lambda: None)).commit(work(world, 0))
    assert world.committed() == {0: 1}, "it was committed, and nobody may say that it was not"


@pytest.mark.parametrize("every", [5, 100])
def test_a_version_that_was_committed_before_a_successor_committed_the_next_one_is_not_called_lost(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """`every`: after so many records the successor writes a checkpoint, which replaces the `done` of the first version."""
    monkeypatch.setattr(committing, "CHECKPOINT_EVERY", every)
    world = fresh()

    def succeeds() -> None:
        assert alone(world).commit(work(world, 1, "r2"))

    first = at_once(Forgets(world, succeeds))
    if every == 5:
        with pytest.raises(OutcomeUnknown):
            first.commit(work(world, 0, "r1"))
    else:
        assert first.commit(work(world, 0, "r1"))
    assert world.committed() == {0: 1, 1: 1}


def test_a_write_without_an_application_that_was_aborted_says_where_to_look() -> None:
    world = fresh()
    one = work(world, 0)
    world.end(one.txn, "aborted")
    with pytest.raises(NotCommitted, match="was aborted before its commit") as raised:
        Ends(Instant(world).end, pause=lambda seconds: None, now=lambda: 0.0, patience=PATIENCE).commit_alone(one)
    assert "txnTimeoutMs" in raised.value.advice
    assert "txnsegment txns abort" in raised.value.advice


def test_a_read_is_bounded_by_the_checkpoints() -> None:
    world = fresh()
    committer = alone(world)
    for version in range(500):
        committer.commit(work(world, version))
    world.reads = 0
    assert alone(world).commit(work(world, 500, "r2"))
    assert world.reads <= 5 + 4
