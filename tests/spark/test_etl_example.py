"""examples/etl.py as a user runs it: by spark-submit, killed while it stages, and run again. `examples/etl_killed.py` does more."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a program of examples/ by its name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == EXAMPLES:
            del sys.modules[name]


@pytest.mark.slow
def test_a_run_that_is_killed_neither_skips_nor_repeats(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    etl_killed = example("etl_killed")
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


def test_the_split_stream_expects_every_flight_once(example: Callable[[str], ModuleType]) -> None:
    split, flights = example("split_flights"), example("nycflights").source_file()
    expected = split.expected(flights)
    assert sum(count for count, _ in expected.values()) == flights.num_rows == 336_776
    assert len(expected) == 3
