"""How long a take-over may wait for the transactions of killed programs."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading

import pytest

from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import ConnectionLost, broker_error
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.committing import Committer
from spark_txn_sink.pulsar.control import Begin, Take, encode
from spark_txn_sink.pulsar.resolving import AT_ONCE, Resolver, resolved
from spark_txn_sink.pulsar.work import Work
from tests.support.pulsar_control_model import PATIENCE, ModelControl, World
from tests.support.waits import Waits

TXNS = [TxnId(0, number) for number in range(AT_ONCE)]
SECONDS = 20.0
"""After this time a test that waits for requests fails."""


def test_transactions_are_asked_for_at_the_same_time() -> None:
    """After many kills the wait is that for the slowest one, and not the sum."""
    together = threading.Barrier(AT_ONCE)

    def end(txn: TxnId, *, commit: bool) -> None:
        together.wait(SECONDS)

    clock = Waits()
    with Resolver(end, pause=clock.pause, now=clock.now, patience=60) as resolver:
        for txn in TXNS:
            resolver.start(txn)
        assert resolver.outcomes() == dict.fromkeys(TXNS, "aborted")


def test_all_transactions_together_have_one_patience() -> None:
    clock, asked = Waits(), list[TxnId]()

    def end(txn: TxnId, *, commit: bool) -> None:
        asked.append(txn)
        clock.pause(7.0)
        raise ConnectionLost("The coordinator is away.")

    with Resolver(end, pause=clock.pause, now=clock.now, patience=60, at_once=0) as resolver:
        for txn in TXNS:
            with pytest.raises(ConnectionLost):
                resolver.start(txn)
    assert clock.seconds <= 60 + 7.2 + len(TXNS) * 7.2
    assert [asked.count(txn) for txn in TXNS] == [9, *[1] * (AT_ONCE - 1)]


def test_each_outcome_is_asked_for_once() -> None:
    answers = {TXNS[0]: None, TXNS[1]: 21, TXNS[2]: 24}
    asked = list[TxnId]()

    def end(txn: TxnId, *, commit: bool) -> None:
        asked.append(txn)
        if (code := answers[txn]) is not None:
            raise broker_error(code, "", "end txn")

    clock = Waits()
    with Resolver(end, pause=clock.pause, now=clock.now, patience=60) as resolver:
        for txn in (*answers, *answers):
            resolver.start(txn)
        assert resolver.outcomes() == {TXNS[0]: "aborted", TXNS[1]: "committed", TXNS[2]: None}
    assert sorted(asked) == [*answers]


def test_a_caller_that_gives_up_waits_for_no_request_and_no_request_follows() -> None:
    """As after Ctrl-C, while the coordinator does not answer."""
    clock, asked = Waits(), list[TxnId]()
    under_way, over, raised = threading.Barrier(AT_ONCE + 1), threading.Event(), list[str]()

    def end(txn: TxnId, *, commit: bool) -> None:
        asked.append(txn)
        under_way.wait(SECONDS)
        assert over.wait(SECONDS)
        raise ConnectionLost("The client was closed.")

    def caller() -> None:
        with contextlib.suppress(KeyboardInterrupt), Resolver(end, pause=clock.pause, now=clock.now, patience=60) as resolver:
            for txn in (*TXNS, TxnId(1, 0)):
                resolver.start(txn)
            under_way.wait(SECONDS)
            raise KeyboardInterrupt
        raised.append("at once")

    calling = threading.Thread(target=caller, daemon=True)
    calling.start()
    calling.join(SECONDS / 2)
    said = list(raised)
    over.set()
    for one in threading.enumerate():
        if one.name.startswith("txnsegment-pulsar-end"):
            one.join(SECONDS)
    assert said == ["at once"]
    assert sorted(asked) == TXNS


def test_an_abort_is_not_repeated_if_its_caller_gives_up_during_the_pause() -> None:
    over, asked, waits = threading.Event(), list[TxnId](), Waits()

    def end(txn: TxnId, *, commit: bool) -> None:
        asked.append(txn)
        raise ConnectionLost("The client was closed.")

    with pytest.raises(ConnectionLost):
        resolved(end, TXNS[0], pause=lambda seconds: over.set(), now=waits.now, patience=60, stopped=over.is_set)
    assert asked == TXNS[:1]


class Control(ModelControl):
    """The control topic of a driver after many killed ones. `together`: aborts wait until so many are under way. `away`: the
    coordinator cannot be reached for aborts.
    """

    def __init__(self, world: World, strays: list[TxnId], together: int = 1) -> None:
        super().__init__(world)
        self.left, self.together, self.away, self.passes = strays, threading.Barrier(together), False, 0

    def strays(self, opened: Opened) -> list[TxnId]:
        return self.left

    def passed(self, opened: Opened) -> None:
        self.passes += 1

    def end(self, txn: TxnId, *, commit: bool) -> None:
        if not commit and self.away:
            raise ConnectionLost("The coordinator is away.")
        if not commit:
            self.together.wait(SECONDS)
        super().end(txn, commit=commit)


def killed(world: World, count: int) -> list[TxnId]:
    return [world.begin(number) for number in range(count)]


def work(world: World, version: int) -> Work:
    txn = world.begin(version)
    opened = Opened(txn, "segment", Position(0, 9))
    return Work(txn, "r", version, "t", {}, 1, "app to t", streaming=False, opened=opened)


def committer(control: Control, clock: Waits) -> Committer:
    return Committer(control, pause=clock.pause, now=clock.now, patience=PATIENCE)


def test_the_commits_that_killed_drivers_began_are_aborted_at_the_same_time() -> None:
    world = World(random.Random(0), 0.0)
    left = killed(world, AT_ONCE)
    for txn in left:
        world.write(encode(Take(txn.text)), None)
        world.write(encode(Begin(txn, 0, txn.text)), None)
    assert committer(Control(world, [], AT_ONCE), Waits()).commit(work(world, 100))
    assert {world.txns[txn] for txn in left} == {"aborted"}


def test_transactions_that_killed_drivers_left_without_a_begin_are_aborted_at_the_same_time() -> None:
    world = World(random.Random(0), 0.0)
    left = killed(world, AT_ONCE)
    control = Control(world, left, AT_ONCE)
    assert committer(control, Waits()).commit(work(world, 100))
    assert {world.txns[txn] for txn in left} == {"aborted"}
    assert control.passes == 1


def test_a_coordinator_that_cannot_be_reached_for_them_delays_no_commit_and_is_asked_again_at_the_next_one() -> None:
    world = World(random.Random(0), 0.0)
    left = killed(world, 14)
    control, clock = Control(world, left), Waits()
    control.away = True
    driver = committer(control, clock)
    assert driver.commit(work(world, 100))
    assert (clock.seconds, control.passes) == (0.0, 0)
    control.away = False
    assert driver.commit(dataclasses.replace(work(world, 101)))
    assert {world.txns[txn] for txn in left} == {"aborted"}
    assert control.passes == 1


def test_a_driver_that_cannot_own_its_control_topic_gives_up_after_one_patience() -> None:
    """It tries three times, but not if each time takes all of the patience."""
    world, clock, takes = World(random.Random(0), 0.0), Waits(), list[str]()

    class Lost(Control):
        def take(self, run: str) -> Position:
            takes.append(run)
            clock.pause(PATIENCE + 1)
            raise ConnectionLost("The broker is away.")

    with pytest.raises(ConnectionLost):
        committer(Lost(world, []), clock).commit(work(world, 0))
    assert takes == ["r"]
