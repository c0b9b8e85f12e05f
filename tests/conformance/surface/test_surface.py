"""Short random runs of the public API find no fault on SQLite and on ZooKeeper. If a fault is planted, a run finds the fault and
shrinks the list of its calls. The shrunk list shows the fault again.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.harness.spark_driver import MicroBatchExecution
from conformance.servers import ZooKeeperServer
from conformance.surface.__main__ import main
from conformance.surface.bench import Bench
from conformance.surface.drive import draw, execute, shrink
from conformance.surface.model import Fault, Model, Row, Written
from conformance.surface.operations import CATALOGUE, Op
from metadata.common.errors import TxnConflict
from txnsegment import Consumer, Transaction

SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_public_calls_on_sqlite_agree_with_the_model(seed: int, tmp_path: Path) -> None:
    outcome = execute(draw(f"test/{seed}"), None, str(tmp_path))
    assert outcome.failure is None, f"{outcome.failure.oracle}: {outcome.failure.text}"


@pytest.mark.parametrize("seed", range(4))
def test_a_persistent_topic_and_its_migration_agree_with_the_model(seed: int, tmp_path: Path) -> None:
    outcome = execute(draw(f"test-migrations/{seed}", ["migrations"]), None, str(tmp_path))
    assert outcome.failure is None, f"{outcome.failure.oracle}: {outcome.failure.text}"
    assert outcome.done["migrate"] or outcome.done["migrate_hold"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.hosts


@pytest.mark.parametrize("seed", range(3))
def test_public_calls_on_zookeeper_agree_with_the_model(seed: int, hosts: str, tmp_path: Path) -> None:
    outcome = execute(draw(f"test-zookeeper/{seed}"), hosts, str(tmp_path))
    assert outcome.failure is None, f"{outcome.failure.oracle}: {outcome.failure.text}"


@pytest.mark.parametrize("file", sorted((Path(__file__).parent / "found").iterdir()), ids=lambda file: file.stem)
def test_each_shrunk_failure_of_the_past_passes(file: Path, tmp_path: Path) -> None:
    ops = [(name, args) for name, args in json.loads(file.read_text())]
    outcome = execute(ops, None, str(tmp_path))
    assert outcome.failure is None, f"{outcome.failure.oracle}: {outcome.failure.text}"
    assert outcome.steps == len(ops)


def test_a_run_is_drawn_from_its_seed_and_all_runs_use_every_operation() -> None:
    assert draw("a/1") == draw("a/1") != draw("a/2")
    assert {name for seed in range(200) for name, _ in draw(f"a/{seed}")} == CATALOGUE.keys()


LOSING: list[Op] = [
    ("create_topic", {"w": 0, "t": 0, "segments": 0, "key": 0, "schema": 1}),
    ("wait", {"w": 0, "by": 1}),
    ("produce", {"w": 0, "t": 0, "p": 0, "rows": 3, "seed": 5, "how": 0}),
    ("subscribe", {"w": 0, "t": 0, "s": 1, "start": 0, "p": 0}),
    ("consumer_open", {"w": 0, "t": 0, "t2": 0, "both": 1, "s": 0, "p": 0}),
    ("wait", {"w": 0, "by": 2}),
    ("consume", {"w": 0, "c": 0, "count": 1, "kind": 0, "leave": 1, "g": 0, "old": 1}),
    ("rewind", {"w": 0, "c": 0}),
]


REFUSED: list[Op] = [
    ("create_topic", {"w": 0, "t": 0, "segments": 0, "key": 0, "schema": 1}),
    ("begin", {"w": 0, "p": 0, "app": 2, "version": 0}),
    ("append", {"w": 0, "x": 0, "t": 0, "rows": 1, "seed": 5}),
    ("commit", {"w": 0, "x": 0}),
]


def test_a_commit_that_fails_without_a_reason_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert execute(REFUSED, None, str(tmp_path)).failure is None

    def commit(self: Transaction) -> None:
        raise TxnConflict("a planted fault")

    monkeypatch.setattr(Transaction, "commit", commit)
    failure = execute(REFUSED, None, str(tmp_path)).failure
    assert failure is not None
    assert failure.text.startswith("a commit failed though nothing had changed: TxnConflict")


@pytest.fixture
def skipping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fault: a consumer that has delivered rows skips the first row after a rewind."""
    real = Consumer.rewind

    def rewind(self: Consumer) -> None:
        real(self)
        if self._given_before:
            next(self.messages(timeout=0))

    monkeypatch.setattr(Consumer, "rewind", rewind)


def test_a_fault_is_found_shrunk_and_run_again_exactly(skipping: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = execute(LOSING, None, str(tmp_path)).failure
    assert found is not None
    assert found.oracle == "consumer: lost"
    small = shrink(found, lambda ops: execute(ops, None, str(tmp_path)))
    assert small.oracle == found.oracle
    assert [name for name, _ in small.ops] == [
        "create_topic",
        "produce",
        "consumer_open",
        "consume",
    ]  # these calls need no rewind, because every run ends with one
    assert main(["--folder", str(tmp_path), "--ops", json.dumps(small.ops)]) == 1
    said = capsys.readouterr().out
    assert "FAULT consumer: lost" in said
    assert f"--ops '{json.dumps(small.ops)}'" in said
    file = tmp_path / "ops.json"
    file.write_text(json.dumps(small.ops))
    assert main(["--folder", str(tmp_path), "--ops", str(file), "--verbose"]) == 1


@pytest.mark.parametrize("keep_going", [False, True])
def test_many_runs_stop_at_a_failure_unless_told_to_keep_going(
    keep_going: bool, skipping: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--keep-going"] if keep_going else []
    assert main(["--folder", str(tmp_path), "--steps", "300", "--seed", "5", "--no-shrink", *more]) == 1
    said = capsys.readouterr().out
    assert "consumer: lost" in said
    steps = re.search(r"^(\d+) steps in \d+ runs", said, re.MULTILINE)
    assert steps is not None
    assert (int(steps[1]) >= 300) == keep_going
    assert logging.getLogger("txnsegment").isEnabledFor(logging.WARNING), "logging is on again after the runs"


def test_the_model_finds_a_torn_transaction_and_an_uncommitted_row() -> None:
    model = Model()
    model.make("t", None)
    rows = [Row(n, "t#1", None) for n in range(3)]
    model.commit(Written(rows[:2]), 1, 0)
    model.check_whole([0, 1], "a read")
    with pytest.raises(Fault, match="torn: a read shows 1 of 2 rows"):
        model.check_whole([0], "a read")
    with pytest.raises(Fault, match=r"ghost: a read shows rows \[2\]"):
        model.check_real([2], "a read")
    with pytest.raises(Fault, match=r"lost: a read does not show rows \[1\]"):
        model.check_rows([0], {0, 1}, "a read", gone_by=None, what="batch")
    with pytest.raises(Fault, match=r"twice: a read shows rows \[1\] twice"):
        model.check_rows([0, 1, 1], {0, 1}, "a read", gone_by=None, what="batch")


def test_the_engine_plans_as_spark_does_after_each_kind_of_death() -> None:
    """A checkpoint's offset log and commit log decide what the engine plans after a restart, as in Spark (populateStartOffsets)."""

    class Reader:
        def getDefaultReadLimit(self) -> object:
            from pyspark.sql.streaming.datasource import ReadAllAvailable

            return ReadAllAvailable()

    def restarted(offsets: list[str], commits: set[int]) -> tuple[int, bool, str | None, str | None]:
        engine = MicroBatchExecution()
        engine.offsets, engine.commits = offsets, commits
        engine.begin(Reader())
        return engine.batch, engine.constructed, engine.committed, engine.available

    assert restarted([], set()) == (0, False, None, None)
    assert restarted(["a"], set()) == (0, True, None, "a")
    assert restarted(["a"], {0}) == (1, False, "a", "a")
    assert restarted(["a", "b"], {0}) == (1, True, "a", "b")
    assert restarted(["a", "b"], {0, 1}) == (2, False, "b", "b")
    assert restarted(["a", "b"], set()) == (1, True, "a", "b")


def test_each_run_leaves_no_files_behind(tmp_path: Path) -> None:
    execute(draw("test/1"), None, str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    bench = Bench.begin(None, str(tmp_path))
    bench.end()
    assert list(tmp_path.iterdir()) == []
