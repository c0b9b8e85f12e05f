"""Processes that begin and end together (conformance/scenarios/together.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.scenarios.forks import Died, Forks
from conformance.scenarios.together import late, say, wait_until


def ends_at_once(folder: Path, what: str | None) -> str:
    if what is not None:
        say(what, folder)
    return "its result"


def test_a_process_that_ends_before_it_reaches_the_state_has_died(forks: Forks, tmp_path: Path) -> None:
    """It ends without an error, so its result says nothing of this."""
    child = forks.start(ends_at_once, tmp_path, None)
    with pytest.raises(Died, match=f"process {child.pid} ended before it was ready"):
        wait_until("ready", [child], tmp_path)


def test_a_process_that_ends_in_the_state_keeps_its_result(forks: Forks, tmp_path: Path) -> None:
    child = forks.start(ends_at_once, tmp_path, "ready")
    assert child.ended(60)
    wait_until("ready", [child], tmp_path)
    assert late("ready", [child], tmp_path, 0) == []
    assert child.result() == "its result"
