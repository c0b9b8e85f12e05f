"""Processes whose clocks differ by hours lose no row, on both stores. `make chaos` runs the long form, also with libfaketime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.domains import TOPIC, named
from conformance.scenarios.clocks import Clocks
from conformance.scenarios.driver import Place
from conformance.scenarios.scenario import run

TRANSACTIONS = 12


@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_clocks_hours_apart_lose_no_row(store: str, cluster_at: Callable[[str], Place], tmp_path: Path) -> None:
    found = run(Clocks(replace(cluster_at(store), topic=named(TOPIC, "clocks")), tmp_path, TRANSACTIONS))
    assert not found.wrong
