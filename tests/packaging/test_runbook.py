"""docs/runbook.md is true: each section's state of a cluster is made, and the commands of its blocks print what the page shows.

Numbers, times and names of files are those of the run, so they are not compared. `...` on the page stands for any text.
"""

from __future__ import annotations

import errno
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from conformance.servers import free_ports
from ledgers.disk import LocalDisk, in_place_of_the_disk
from metadata.store.zookeeper import ZooKeeperStore
from txnsegment import Cluster, connect
from txnsegment.cli.app import build

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
blocks = runpy.run_path(str(ROOT / "docs" / "readme.py"))["blocks"]

DIES = """
import os, signal
from metadata.write.coordinator import Coordinator
from txnsegment import connect
Coordinator._decide = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with connect() as cluster, cluster.begin(app="till", version=1) as txn:
    txn.append("orders", [{"customer": "eve", "amount": 99.0}])
    txn.commit()
"""
"""A driver that is killed in its commit: its transaction is registered, and not decided."""


def write(cluster: Cluster, *customers: str, app: str = "shop", version: int = 1) -> None:
    with cluster.begin(app=app, version=version) as txn:
        txn.append("orders", [{"customer": one, "amount": 30.0} for one in customers])
        txn.commit()


def killed() -> None:
    assert subprocess.run([sys.executable, "-c", DIES], env=dict(os.environ)).returncode == -9


Situation = Callable[[Cluster, Path, pytest.MonkeyPatch], Generator[None, None, None]]
"""Brings a cluster with the topic `orders` into the state of a section. It yields before each block of the section."""


def a_driver_died(cluster: Cluster, folder: Path, patched: pytest.MonkeyPatch) -> Generator[None, None, None]:
    write(cluster, "ann", "bob")
    killed()
    yield
    with connect() as again:
        write(again, "eve", app="till")
    yield


def a_transaction_stays_open(cluster: Cluster, folder: Path, patched: pytest.MonkeyPatch) -> Generator[None, None, None]:
    write(cluster, "ann", "bob")
    killed()
    write(cluster, "joe", version=2)
    cluster.client.finish()
    yield
    yield


def a_stream_does_not_advance(cluster: Cluster, folder: Path, patched: pytest.MonkeyPatch) -> Generator[None, None, None]:
    write(cluster, "ann", "bob")
    cluster.subscriptions.create("orders", "reports")
    yield


class NoRoom(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullVolume(LocalDisk):
    """A volume that has room for names of files, and none for their bytes."""

    def create(self, path: Path, mode: int = 0o644) -> pa.NativeFile:
        super().create(path, mode).close()
        return pa.PythonFile(NoRoom(), mode="w")


def the_disk_is_full(cluster: Cluster, folder: Path, patched: pytest.MonkeyPatch) -> Generator[None, None, None]:
    with in_place_of_the_disk(FullVolume()):
        yield
    yield


def zookeeper_is_away(cluster: Cluster, folder: Path, patched: pytest.MonkeyPatch) -> Generator[None, None, None]:
    (port,) = free_ports(1)
    patched.setenv("TXNSEGMENT_SERVICE_URL", f"zk://127.0.0.1:{port}/txnsegment")
    patched.setitem(ZooKeeperStore.__init__.__kwdefaults__, "connect_seconds", 0.3)
    yield


def verify_reports_a_finding(cluster: Cluster, folder: Path, patched: pytest.MonkeyPatch) -> Generator[None, None, None]:
    write(cluster, "ann", "bob")
    part = sorted((folder / "ledgers").rglob("8000-ffff-1/*.parquet"))[0]
    sound = part.read_bytes()
    part.write_bytes(sound[:60] + b"x" + sound[61:])
    yield
    part.write_bytes(sound)
    yield


def a_topic_grows_without_end(cluster: Cluster, folder: Path, patched: pytest.MonkeyPatch) -> Generator[None, None, None]:
    write(cluster, "ann", "bob")
    cluster.subscriptions.create("orders", "reports")
    yield
    cluster.sweep()  # folds the rows: only folded rows are trimmed
    time.sleep(1.1)  # the rows are older than the policy of the page keeps them
    yield
    yield


SITUATIONS: dict[str, Situation] = {
    "A driver died": a_driver_died,
    "A transaction stays open": a_transaction_stays_open,
    "A stream does not advance": a_stream_does_not_advance,
    "The disk is full": the_disk_is_full,
    "ZooKeeper is away": zookeeper_is_away,
    "`verify` reports a finding": verify_reports_a_finding,
    "A topic grows without end": a_topic_grows_without_end,
}


def plain(text: str) -> str:
    """Return an output without numbers, times, names of files, and the width of columns."""
    for pattern, word in (
        (r"[0-9a-f]{32}", "FILE"),
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"\d+(\.\d+)?", "#"),
        (r"[ \t]+", " "),
    ):
        text = re.sub(pattern, word, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def shown(block: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block, each with its output on the page."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def run(command: str) -> str:
    program, *words = shlex.split(command)
    assert program == "txnsegment"
    given = '{"customer": "bob", "amount": 30}\n'
    words = words[: words.index("<")] if "<" in words else words
    return CliRunner().invoke(build(), words, input=given).output


@pytest.mark.parametrize("title", SECTIONS)
def test_the_commands_of_a_section_print_what_it_shows(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cluster"
    monkeypatch.setenv("TXNSEGMENT_SERVICE_URL", folder.as_uri())
    runs = [block.text for block in blocks(SECTIONS[title]) if (block.language, block.purpose) == ("text", "runbook")]
    assert runs
    with connect() as cluster:
        cluster.topics.create("orders", segments=2, key="customer", schema="customer string, amount double")
        with closing(SITUATIONS[title](cluster, folder, monkeypatch)) as situation:
            for block in runs:
                next(situation)
                for command, page in shown(block):
                    pattern = ".*".join(re.escape(part.strip()) for part in plain(page).split("..."))
                    printed = plain(run(command))
                    assert re.fullmatch(pattern, printed, re.DOTALL), f"$ {command}\n{printed}"
            assert next(situation, "the end") == "the end", "each block has its state"


def test_each_section_says_what_is_seen_what_to_do_and_what_not() -> None:
    assert SECTIONS.keys() == SITUATIONS.keys()
    assert [title for title, text in SECTIONS.items() if not all(f"**{word}" in text for word in ("Seen.", "Do.", "Do not"))] == []
