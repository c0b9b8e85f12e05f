"""Histories of simulated schedules are written to a file and read back. The checker accepts the history of a correct schedule.
After a row is removed from a read, the checker finds the damage.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.command.main import main
from conformance.history.checker import check, verdict
from conformance.history.files import read, write
from conformance.history.format import Read
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule


@pytest.mark.parametrize("seed", [3, 8, 1292])
def test_the_history_of_a_schedule_round_trips_through_a_file(seed: int, tmp_path: Path) -> None:
    assert main(["--simulate", "1", "--kind", "wide", "--seed", str(seed), "--record", str(tmp_path / "history")]) == 0
    with quiet():
        outcome = schedule(seed, only="wide", digest=True)
    events = read(tmp_path / "history")
    assert events == outcome.events
    found = verdict(events)
    assert not found.findings
    assert (found.commits, found.store) == (outcome.before + outcome.commits, True)
    last = max(i for i, e in enumerate(events) if isinstance(e, Read) and e.rows)
    event = events[last]
    assert isinstance(event, Read)
    events[last] = event._replace(rows=event.rows[1:])
    assert {"torn read", "lost write", "internal skip"} & {f.anomaly for f in check(events)}
    write(tmp_path / "changed", events)
    assert list(map(str, check(read(tmp_path / "changed")))) == list(map(str, check(events)))
