"""The sink's driver is killed or suspended at each step of a commit, on a real broker. Afterwards each version is there once, and
the versions are in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient
from tests.support.pulsar_driver import values_of
from tests.support.pulsar_reads import messages_of

pytestmark = pytest.mark.pulsar
VERSIONS = 3
STEPS = ["after rows", *(f"{when} {step}" for step in ("take", "begin", "done", "end") for when in ("before", "after"))]


class Job:
    """A job of small drivers that share a topic and a checkpoint."""

    def __init__(self, broker: PulsarBroker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.topic = broker.create(f"sink-{uuid.uuid4().hex[:12]}", 4)
        self._started: list[subprocess.Popen[str]] = []

    def start(self, run: str, fate: str = "", versions: int = VERSIONS) -> subprocess.Popen[str]:
        words = [self.broker.url, self.broker.admin_url, self.topic, str(self.folder), run, str(versions)]
        command = [sys.executable, "-m", "tests.support.pulsar_driver", *words]
        made = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "FATE": fate})
        self._started.append(made)
        return made

    def run(self, run: str, fate: str = "", versions: int = VERSIONS) -> tuple[int, str]:
        made = self.start(run, fate, versions)
        text, _ = made.communicate(timeout=120)
        return made.returncode, text

    def check(self, versions: int = VERSIONS) -> None:
        """Read all rows. Check that each row is there once, and that the rows of each key are in the order of their versions, and
        within a version in the order in which they were sent.
        """
        found: list[tuple[str, bytes]] = []
        with PulsarClient(self.broker.url) as client:
            for segment in client.layout(self.topic).active:
                found += [((one.key or b"").decode(), one.value or b"") for one in messages_of(client, segment.name)]
        assert Counter(found) == Counter(row for version in range(versions) for row in values_of(version))
        for key in {key for key, _ in found}:
            mine = [value for one, value in found if one == key]
            assert mine == sorted(mine)

    def close(self) -> None:
        for one in self._started:
            if one.poll() is None:
                one.kill()
            one.communicate()


@pytest.fixture
def job(pulsar_broker: PulsarBroker, tmp_path: Path) -> Iterator[Job]:
    made = Job(pulsar_broker, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_is_killed_leaves_each_version_once(job: Job, step: str) -> None:
    # A driver has the step `take` only in the first version that it commits, which is version 0 here.
    version = 0 if "take" in step else 1
    code, _ = job.run("r1", f"kill {step} {version}")
    assert code == -signal.SIGKILL
    code, text = job.run("r2")
    assert code == 0, text
    first = "skipped" if step == "after end" else "committed"
    assert text.splitlines()[0] == f"{first} {version}"
    job.check()


@pytest.mark.parametrize("step", ["after rows", "after begin", "before done", "after done", "before end", "after end"])
def test_a_driver_that_is_suspended_while_its_successor_runs_commits_nothing(job: Job, step: str) -> None:
    zombie = job.start("r1", f"stop {step} 1")
    wait(lambda: stopped(zombie.pid))
    code, text = job.run("r2")
    assert code == 0, text
    assert text.splitlines()[0] == f"{'skipped' if step == 'after end' else 'committed'} 1"
    os.kill(zombie.pid, signal.SIGCONT)
    text, _ = zombie.communicate(timeout=120)
    assert zombie.returncode == 1
    assert text.splitlines()[-1].split(":")[0] in ("TakenOver", "NotCommitted", "VersionRefused"), text
    job.check()


def test_two_drivers_of_one_checkpoint_commit_each_version_once(job: Job) -> None:
    drivers = [job.start(run, versions=12) for run in ("r1", "r2")]
    texts = [one.communicate(timeout=200)[0] for one in drivers]
    code, last = job.run("r3", versions=12)  # both drivers may have been refused, so a third driver finishes the job
    assert code == 0, last
    texts.append(last)
    committed = [line for text in texts for line in text.splitlines() if line.startswith("committed")]
    assert len(committed) == len(set(committed))
    job.check(12)


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def wait(holds: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
