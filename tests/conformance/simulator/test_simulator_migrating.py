"""Schedules of migrations in the simulator. No schedule breaks a rule, and every situation occurs in some of them."""

from __future__ import annotations

from collections import Counter

from conformance.history.format import Ack, Application, Entry, Event, Header, Layout, Poll, Read, Seal
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule
from conformance.simulator.world.stage import P, Q, W, Y, Z

SEEDS = (*range(100, 152), 164, 398, 438, 915, 50155, 206934)
"""In the schedules 915 and 50155, retention removes rows that a subscription received and released, before the subscription
receives them again. In the schedule 206934, two threads of a process would replay one log at once if no lock excluded them.
"""
WANTED = (
    *("void seal", "behind the seal", "marker behind the seal", "second common seal", "split", "application carried"),
    *("pending", "acked", "acked afterwards", "delivery before", "delivery afterwards", "committed afterwards"),
    *("stream of the old name", "stream that went on", "stream of the new name", "batch that went on"),
    *("both", "another name", "crashes"),
)


def test_schedules_with_migrations_break_no_rule_and_meet_every_situation() -> None:
    seen = Counter[str]()
    with quiet():
        for seed in SEEDS:
            found = schedule(seed, only="migrating", digest=True)
            assert not found.violations, (seed, found.violations)
            seen.update(_seen(found.events))
            seen["crashes"] += found.crashes
    assert not [what for what in WANTED if not seen[what]], seen


def _seen(events: list[Event]) -> Counter[str]:
    seen, went_on, old, seals = Counter[str](), set[str](), set[str](), Counter[str]()
    last = {e.log: e.number for e in events if isinstance(e, Entry) and e.kind == "SEAL"}
    for event in events:
        if isinstance(event, Entry):
            marker = "marker " if event.kind in ("COMMIT", "ABORT") else ""
            seen[f"{marker}behind the seal"] += event.number > last.get(event.log, event.number)
            seals[event.log] += event.kind == "SEAL"
        elif isinstance(event, Seal) and event.why == "migrate":
            seen["second common seal"] += event.topic in went_on
            went_on.add(event.topic)
        elif isinstance(event, Layout):
            seen["split"] += event.epoch > 1
        elif isinstance(event, Application):
            seen["application carried"] += not went_on
        elif isinstance(event, Ack):
            seen[event.state] += 1
            seen["acked afterwards"] += bool(went_on) and event.state == "acked"
        elif isinstance(event, Header):
            seen["committed afterwards"] += event.state == "COMMITTED"
        elif isinstance(event, Poll) and event.subscription is not None:
            seen["delivery afterwards" if event.log == "" else "delivery before"] += bool(event.rows)
        elif isinstance(event, Poll):
            if event.log:
                old.add(event.stream)
            kind = "of the old name" if event.log else "that went on" if event.stream in old else "of the new name"
            seen[f"stream {kind}"] += bool(event.rows)
        elif isinstance(event, Read) and event.who == "b1":
            seen["batch that went on"] += event.log == ""
    seen["void seal"] += max(seals[P], seals[Q]) > 1
    seen["both"] += {Y, Z} <= went_on
    seen["another name"] += W in went_on
    return seen


def test_a_schedule_with_a_migration_is_the_same_twice() -> None:
    with quiet():
        first, second = (schedule(7, only="migrating", digest=True) for _ in range(2))
    assert first.digest == second.digest
    assert first.events == second.events
