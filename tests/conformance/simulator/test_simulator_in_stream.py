"""Schedules of the marker-based model in the simulator. No schedule breaks a rule, and every situation occurs in some of them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from conformance.history.files import line, parse
from conformance.history.format import Ack, Entry, Header, Poll, Trim
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule
from ledgers.errors import CorruptSnapshot
from metadata.common.errors import SweepIncomplete
from metadata.instream.sweeping import InStreamReport, InStreamSweeper
from metadata.instream.topics import PersistentTopic

SEEDS = (*range(200, 330), 466, 508)
"""In the schedules 466 and 508 an aborted transaction releases its pending acks."""


def test_marker_based_schedules_break_no_rule_and_meet_every_situation() -> None:
    seen = Counter[str]()
    with quiet():
        for seed in SEEDS:
            found = schedule(seed, only="instream", digest=True)
            assert not found.violations, (seed, found.violations)
            ended, both = set[str](), set[str]()
            for event in found.events:
                if isinstance(event, Entry):
                    seen[f"{event.kind} {event.state or ''}".strip()] += 1
                    zombie = event.kind == "DATA" and f"{event.log} {event.txn}" in ended
                    seen["zombie"] += zombie
                    if event.kind in ("COMMIT", "ABORT"):
                        seen["second marker"] += f"{event.log} {event.txn}" in ended
                        ended.add(f"{event.log} {event.txn}")
                    both.add("persistent")
                elif isinstance(event, Header):
                    both.add("topic")
                elif isinstance(event, Ack):
                    seen[f"ack {event.state}"] += 1
                elif isinstance(event, Trim):
                    seen["trim"] += 1
                elif isinstance(event, Poll):
                    seen["micro-batch" if event.subscription is None else "delivery"] += bool(event.rows)
            seen["both kinds"] += len(both) == 2
            seen["crashes"] += found.crashes
            assert [parse(line(event)) for event in found.events[:20]] == found.events[:20]
    kinds = ("NEW", "ADD", "DATA", "COMMIT", "ABORT", "SEAL", "STATUS COMMITTING", "STATUS COMMITTED", "STATUS ABORTING")
    rest = ("zombie", "second marker", "ack pending", "ack acked", "ack released", "trim", "micro-batch", "delivery", "both kinds")
    assert not [what for what in (*kinds, "STATUS ABORTED", *rest, "crashes") if not seen[what]], seen


def test_a_marker_based_schedule_is_the_same_twice() -> None:
    with quiet():
        first, second = (schedule(7, only="instream", digest=True) for _ in range(2))
    assert first.digest == second.digest
    assert first.events == second.events


def test_a_sweep_that_finds_a_damaged_file_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that finds a damaged file in one topic continues with the other topics, and then raises SweepIncomplete. The
    simulator reports this error as a violation, because no fault of the world explains the damage.
    """
    sweep, broken = InStreamSweeper._sweep_topic, set[int]()

    def once(self: InStreamSweeper, topic: PersistentTopic, report: InStreamReport) -> None:
        if broken:
            broken.clear()
            raise CorruptSnapshot("Planted.", advice="None.")
        sweep(self, topic, report)

    monkeypatch.setattr(InStreamSweeper, "_sweep_topic", once)
    said: list[str] = []
    with quiet():
        for seed in range(30):
            broken.add(seed)
            with suppress(SweepIncomplete):  # the last sweep of a world raises SweepIncomplete if no earlier sweep found the damage
                said += schedule(seed, only="instream").violations
    assert any("k0: 1 persistent topics could not be swept" in text for text in said)
