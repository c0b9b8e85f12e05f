"""examples/etl.py as a user runs it: by spark-submit, killed while it stages, and run again. `examples/etl_killed.py` does more."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def etl_killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = set(sys.modules)
    yield importlib.import_module("etl_killed")
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == EXAMPLES:
            del sys.modules[name]


@pytest.mark.slow
def test_a_run_that_is_killed_neither_skips_nor_repeats(etl_killed: ModuleType, tmp_path: Path) -> None:
    schedule = etl_killed.Schedule(tmp_path)
    schedule.arrive(2)
    assert etl_killed.kill_at(schedule, "its first write is staged")
    assert schedule.committed() == 0
    assert schedule.staged() >= 1
    schedule.arrive(1)
    with schedule.run() as process:
        process.wait()
    assert process.returncode == 0
    for what, found, wanted in schedule.checks(done=True):
        assert found == wanted, what
    assert schedule.committed() == 1
    schedule.cluster.close()
