"""The driver of a stream on a subscription is killed. No row is skipped, and only rows beyond the cursor are repeated."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from conformance.harness.spark_start import spark_environment
from conformance.scenarios.copying import copying
from conformance.scenarios.sessions import launched

if TYPE_CHECKING:
    from tests.spark.conftest import Deployment

ROWS = 3
"""How many rows a micro-batch has."""
LIMIT_SECONDS = 600.0
"""The time limit for the first two micro-batches of a driver, or for the planning of its first one."""


@pytest.mark.slow
def test_a_killed_driver_skips_nothing(here: Deployment, tmp_path: Path) -> None:
    cluster = here.cluster
    cluster.topics.create("t", schema="id bigint", segments=2)
    cluster.topics.create("out", schema="id bigint")
    wanted = list(range(24))
    for number in wanted:
        here.append("t", pa.table({"id": [number]}))
    cluster.subscriptions.create("t", "s")
    place = {"url": here.url, "source": "t", "target": "out", "subscription": "s", "rows": str(ROWS), "folder": str(tmp_path)}
    arguments = [word for name, value in place.items() for word in (f"--{name}", value)]
    first: list[int] = []
    with launched(
        "conformance.scenarios.copying", arguments, tmp_path / "driver.log", spark_environment(warm=True), nice=0
    ) as driver:
        with cluster.consumer("out", "watch", start="earliest") as watch:
            until = time.monotonic() + LIMIT_SECONDS
            while len(first) < 2 * ROWS:
                assert driver.running(), driver.tail()
                assert time.monotonic() < until, driver.tail()
                first += [message.value["id"] for message in islice(watch.messages(timeout=1), 2 * ROWS - len(first))]
        driver.kill()
    assert sorted(first) == wanted[: 2 * ROWS]

    # The stream has written all acknowledged rows, because the cursor is never ahead of the sink.
    copied = [row.id for row in here.read("out").collect()]
    left = [row.id for row in here.read("t", subscription="s").collect()]
    assert sorted({*copied, *left}) == wanted
    assert len(copied) + len(left) <= len(wanted) + 2 * ROWS, "the cursor is behind the sink by two micro-batches at most"
    assert cluster.subscriptions.describe("t", "s").lag.rows == len(left)

    # A restart from the stream's checkpoint writes each row once.
    copying(here.spark, here.url, "t", "out", "s", tmp_path / "checkpoint", 9).trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.id for row in here.read("out").collect()) == wanted

    # The cursor moves over a batch only when the next batch is planned. So a new checkpoint reads the last batch again.
    left = [row.id for row in here.read("t", subscription="s").collect()]
    assert 0 < len(left) <= 9
    again = [row.id for batch in here.drain(here.stream("t", subscription="s"), "new") for row in batch]
    assert sorted(again) == sorted(left)


@pytest.mark.slow
def test_a_driver_killed_before_its_first_batch_was_done_writes_each_row_once(here: Deployment, tmp_path: Path) -> None:
    """The first batch was planned from the cursor. Another process moves the cursor before the restart. The restart replays the
    planned rows, and writes each row once.
    """
    cluster = here.cluster
    cluster.topics.create("t", schema="id bigint", segments=2)
    cluster.topics.create("out", schema="id bigint")
    for number in range(6):
        here.append("t", pa.table({"id": [number]}))
    cluster.subscriptions.create("t", "s")
    place = {"url": here.url, "source": "t", "subscription": "s", "folder": str(tmp_path)}
    arguments = [word for name, value in place.items() for word in (f"--{name}", value)]
    with launched(
        "conformance.scenarios.holding", arguments, tmp_path / "driver.log", spark_environment(warm=True), nice=0
    ) as driver:
        assert driver.wait_for(tmp_path / "planned", LIMIT_SECONDS), driver.tail()
        driver.kill()
    checkpoint = tmp_path / "checkpoint"
    assert (checkpoint / "offsets" / "0").exists()
    assert not (checkpoint / "commits" / "0").exists()
    cluster.subscriptions.seek("t", "s", "latest")

    def go_on() -> list[int]:
        copying(here.spark, here.url, "t", "out", "s", checkpoint, 9).trigger(availableNow=True).start().awaitTermination()
        return sorted(row.id for row in here.read("out").collect())

    assert go_on() == list(range(6))

    # Spark's commit record is lost, too. The sink skips the repeated batch by its version, so no row is written twice.
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    here.append("t", pa.table({"id": [6]}))
    assert go_on() == list(range(7))
