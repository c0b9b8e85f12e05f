"""The cluster suite with three faults, on real servers, with jobs that use the wheel. `make chaos` injects a hundred faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.history.files import read as read_history
from conformance.history.format import Commit, Fault, Poll, Read, Trim
from conformance.scenarios.cluster.run import Cluster, results
from conformance.scenarios.scenario import run

pytestmark = pytest.mark.slow


def test_three_faults_on_a_real_cluster(tmp_path: Path) -> None:
    """An executor, the ZooKeeper leader, and the process that changes topics are killed. The check after the run finds nothing
    wrong.
    """
    kinds = ("executor-kill", "leader-kill", "changing-kill")
    cluster = Cluster(3, 5, print, kinds=kinds, quiet_seconds=3, out=tmp_path)
    found, report = results(cluster.report, run(cluster).wrong), cluster.report
    assert [f"{one.name}: {one.detail}" for one in found if not one.ok] == []
    assert {one.name for one in found} == {"executor-kill", "leader-kill", "changing-kill", "exactly once"}
    assert len(report.struck) == 3
    assert not any(one.missed for one in report.struck)
    assert report.struck[-1].recovered is not None
    history = read_history(tmp_path / "history.jsonl")
    assert {Commit, Fault, Poll, Read} <= {type(event) for event in history}
    assert sum(isinstance(event, Fault) for event in history) == 3
    assert sum(isinstance(event, Trim) for event in history) > 0
    assert all(report.figures[what] > 0 for what in ("splits", "merges", "compactions", "trims"))
