"""A driver that is killed in a commit is shown as silent, as long as its transaction is open."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.txnsegment.cli.test_cli_process import environment
from txnsegment import Cluster
from txnsegment.look.drivers import DriverSeen, DriverState
from txnsegment.look.reading import Looker, open_to_look

CODE = (
    "import sys, time\n"
    "from txnsegment import connect\n"
    "from metadata.write import coordinator\n"
    "def hangs(*_, **__):\n"
    "    print('open', flush=True); time.sleep(3600)\n"
    "coordinator.ending.end = hangs\n"
    "with connect(sys.argv[1]) as cluster:\n"
    "    with cluster.begin(app='refunds', version=1, timeout=240) as txn:\n"
    "        txn.append('t', [{'n': 1}])\n"
    "        txn.commit()\n"
)


def test_a_killed_driver_is_silent(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="n bigint")
    driver = subprocess.Popen(
        [sys.executable, "-c", CODE, cluster.url],
        env=environment(TXNSEGMENT_REPORT_SECONDS="0.25"),
        stdout=subprocess.PIPE,
        text=True,
    )
    looker = Looker(open_to_look(cluster.url))

    def wait_for(state: DriverState, after_ms: int = 0) -> DriverSeen:
        patience = time.monotonic() + 30
        while True:
            match looker.look().drivers:
                case [DriverSeen(state=now, open=1) as seen] if now is state and seen.report.at_ms > after_ms:
                    return seen
            assert time.monotonic() < patience, looker.look().drivers
            time.sleep(0.05)

    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "open\n"
        seen = wait_for(DriverState.REPORTING)
        assert seen.name.endswith(f":{driver.pid}")
        assert seen.report.applications == ("refunds",)
        # Nothing changes, and the driver reports again and again, because its transaction is open.
        wait_for(DriverState.REPORTING, after_ms=seen.report.at_ms + 600)
        os.kill(driver.pid, 9)
        wait_for(DriverState.SILENT)
    finally:
        driver.kill()
        driver.communicate(timeout=30)
        looker.close()
