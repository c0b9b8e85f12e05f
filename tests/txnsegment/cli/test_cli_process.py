"""Tests of the command as a process of its own: exit codes, streams, signals, the metrics of the sweeping daemon."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from conformance.servers import free_ports
from metadata.store import open_store
from tests.txnsegment.cli.test_cli import undecided
from txnsegment import Cluster, connect

PROGRAM = [sys.executable, "-c", "from txnsegment.cli.main import main; main()"]


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TXNSEGMENT_", "PROMETHEUS_"))}
    return kept | {"PYSPARK_PYTHON": sys.executable} | more  # `doctor` looks for the Python that Spark starts


def test_the_command_line_works_from_a_program(url: str) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments], env=environment(TXNSEGMENT_SERVICE_URL=url), capture_output=True, text=True, timeout=60
        )

    long = "x" * 200
    assert run("topics", "create", long, "--schema", "n bigint").returncode == 0
    listed = run("topics", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert f"topic://public/default/{long}" in listed.stdout  # a pipe gets the whole name
    assert json.loads(run("topics", "describe", long, "--json").stdout)["name"].endswith(long)
    wrong = run("topics", "describe", "nowhere")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.splitlines()[0] == "Error: There is no topic topic://public/default/nowhere."
    assert "Traceback" not in wrong.stderr
    assert run("--version").stdout.startswith("txnsegment 0.")


SLOW = ["numpy", "pandas", "pyarrow", "pyspark", "prometheus_client", "kazoo", "google.protobuf"]
"""Packages that take most of a second of processor time to load. The commands that need them import them late."""


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--version"], [*SLOW, "pydantic"]),
        (["--help"], [*SLOW, "pydantic"]),
        (["topics", "--help"], SLOW),  # typer itself loads pydantic to build a command's options
        (["pulsar", "start", "--help"], SLOW),
    ],
)
def test_a_command_that_opens_no_cluster_loads_no_slow_package(arguments: list[str], unneeded: list[str]) -> None:
    code = (
        "import atexit, sys; from txnsegment.cli.main import main\n"
        "atexit.register(lambda: print([m for m in %r if m in sys.modules]))\n"
        "sys.argv[1:] = %r; main()"
    )
    words = [sys.executable, "-c", code % (unneeded, arguments)]
    ran = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["[]"]), ran.stderr


@contextmanager
def daemon(*arguments: str, **more: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Start a command that runs until it is stopped. At the end of the block the command gets SIGTERM. A command that got SIGKILL
    would leave its ZooKeeper running.
    """
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        env=environment(PYTHONUNBUFFERED="1", **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


def metric(text: str, name: str) -> float:
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_daemon_sweeps_serves_metrics_and_ends_cleanly(cluster: Cluster, url: str, number: signal.Signals) -> None:
    cluster.topics.create("t")
    undecided(cluster, "0_9999", deadline_in_ms=-60_000)
    with daemon("sweep", "--every", "100ms", "--metrics-port", "0", "--json", "--service-url", url) as (process, out):
        address = out.readline().split()[-1]
        assert address.startswith("http://127.0.0.1:")
        first = json.loads(out.readline())
        assert (first["timedOut"], first["voided"]) == (1, 1)
        assert json.loads(out.readline())["timedOut"] == 0  # the daemon continues
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        assert metric(text, 'txnsegment_sweeps_total{result="ok"}') >= 2
        assert metric(text, "pulsar_txn_metadata_store_outstanding_op_records") == 0
        process.send_signal(number)
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert [t.state for t in cluster.transactions.list()] == ["ABORTED"]


def test_the_daemon_serves_the_counters_of_all_processes(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    code = (
        "import sys, pyarrow as pa; from txnsegment import connect\n"
        "with connect(sys.argv[1]) as cluster:\n"
        "    cluster.topics.create('t')\n"
        "    for _ in range(3):\n"
        "        with cluster.begin() as txn:\n"
        "            txn.append('t', pa.table({'n': [1, 2]}))\n"
        "            txn.commit()\n"
    )
    counting = environment(PROMETHEUS_MULTIPROC_DIR=str(folder))
    subprocess.run([sys.executable, "-c", code, url], env=counting, check=True, timeout=60)
    arguments = ("sweep", "--every", "1h", "--metrics-port", "0", "--json", "--service-url", url)
    with daemon(*arguments, PROMETHEUS_MULTIPROC_DIR=str(folder)) as (process, out):
        address = out.readline().split()[-1]
        out.readline()
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        assert metric(text, "txnsegment_rows_written_total") == 6
        assert metric(text, "txnsegment_commit_seconds_count") == 3
        # The program has also reported its figures into the store, as drivers of other machines do.
        found = re.findall(r'^txnsegment_driver_(\w+)\{driver="[^"]+:\d+"\} (\S+)$', text, re.MULTILINE)
        assert {"commits_total": 3, "rows_total": 6, "open_transactions": 0}.items() <= {n: float(v) for n, v in found}.items()
        assert re.search(r'txnsegment_driver_info\{application="",driver="[^"]+",program="-c",state="ended"\} 1.0', text)
        process.terminate()  # the daemon waits for an hour between passes, but ends at once
        assert process.wait(timeout=30) == 0


def test_a_multiprocess_folder_that_is_missing_is_an_error(url: str, tmp_path: Path) -> None:
    connect(url).close()
    arguments = ("sweep", "--every", "1h", "--metrics-port", "0", "--service-url", url)
    with daemon(*arguments, PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "missing")) as (process, _):
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert str(tmp_path / "missing") in err
    assert "Traceback" not in err


def test_the_daemon_survives_a_pass_that_fails(cluster: Cluster, url: str) -> None:
    cluster.topics.create("t")
    with cluster.begin() as txn:
        txn.append("t", pa.table({"n": [1]}))
        txn.commit()
    cluster.client.finish()
    (segment,) = Path(cluster.ledgers.removeprefix("file://")).glob("public/default/t/*")
    index, away = segment / "index", segment / "away"
    with daemon("sweep", "--every", "100ms", "--json", "--service-url", url) as (process, out):
        assert process.stderr is not None
        assert json.loads(out.readline())["orphansDeleted"] == 0
        with cluster.begin() as txn:
            txn.append("t", pa.table({"n": [2]}))
            if index.is_dir():
                index.rename(away)
            index.write_text("a file in the way")  # this file makes every fold fail, but no commit
            txn.commit()
        cluster.client.finish()  # this call waits for the background fold of this process, which fails as well
        assert "fold failed: segment://public/default/t/" in process.stderr.readline()
        assert "sweep failed: the sweep: Everything was swept but the segment" in process.stderr.readline()
        while "the sweep failed, the next one is in" not in process.stderr.readline():
            continue
        index.unlink()
        if away.is_dir():
            away.rename(index)
        while json.loads(out.readline())["folded"] == 0:
            continue
        process.terminate()
        assert process.wait(timeout=30) == 0


def test_zookeeper_start_serves_until_terminated(tmp_path: Path) -> None:
    with daemon("zookeeper", "start", "--port", "0", "--data", str(tmp_path / "zk")) as (process, out):
        hosts = out.readline().split(" serves on ")[1].split(";")[0]
        assert "txnsegment init" in out.readline()
        with open_store(f"zk://{hosts}/test") as store:
            assert store.view().now_ms() > 0
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert (tmp_path / "zk").is_dir()


def test_a_cluster_on_zookeeper_from_init_to_rows(tmp_path: Path) -> None:
    with daemon("zookeeper", "start", "--port", "0") as (process, out):
        url = f"zk://{out.readline().split(' serves on ')[1].split(';')[0]}/a/b"

        def run(*arguments: str, code: int = 0) -> str:
            done = subprocess.run([*PROGRAM, *arguments], env=environment(), capture_output=True, text=True, timeout=60)
            assert done.returncode == code, done.stderr
            return done.stdout + done.stderr

        assert "There is no /a/b on ZooKeeper" in run("topics", "list", "--service-url", url, code=1)
        assert "There is no cluster at" in run("init", url, code=1)
        run("init", url, "--ledgers", f"file://{tmp_path}/ledgers")
        with connect(url) as cluster:
            cluster.topics.create("t", segments=2, key="k")
            with cluster.begin(app="a", version=1) as txn:
                txn.append("t", pa.table({"k": ["x", "y"], "n": [1, 2]}))
                done = txn.commit()
            assert [t.id for t in cluster.transactions.list("committed")] == [done.txn_id]
            # this call waits for the commit's share of the sweeping, which must not abort the transaction below
            cluster.client.finish()
            undecided(cluster, "0_9999", deadline_in_ms=-60_000)
        assert '"timedOut": 1' in run("sweep", "--json", "--service-url", url)
        found = [json.loads(line)["n"] for line in run("topics", "read", "t", "--json", "--service-url", url).splitlines()]
        assert sorted(found) == [1, 2]
        assert "fail" not in run("doctor", "--service-url", url)
        process.terminate()
        assert process.wait(timeout=30) == 0


def on_a_terminal(url: str, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command whose input and messages are a terminal, at which somebody gives an answer. Return its exit code and the
    screen."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *arguments], env=environment(TXNSEGMENT_SERVICE_URL=url), stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        os.write(master, answer.encode())
        screen = b""
        with contextlib.suppress(OSError):  # the terminal ends with the process
            while more := os.read(master, 4096):
                screen += more
    os.close(master)
    return process.returncode, screen.decode()


def test_a_topic_is_deleted_only_after_a_question(url: str, cluster: Cluster) -> None:
    cluster.topics.create("t")
    for answer in ("n\n", "\n"):
        code, screen = on_a_terminal(url, answer, "topics", "delete", "t")
        assert (code, "Delete topic://public/default/t and all of its rows? This cannot be undone. [y/N]" in screen) == (1, True)
        assert "Nothing was done." in screen
    script = subprocess.run(
        [*PROGRAM, "topics", "delete", "t"],
        env=environment(TXNSEGMENT_SERVICE_URL=url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert script.returncode == 1
    assert "Give --yes to do it without a question. Nothing was done." in script.stderr
    assert len(cluster.topics.list()) == 1
    assert on_a_terminal(url, "y\n", "topics", "delete", "t")[0] == 0
    assert cluster.topics.list() == []


@pytest.mark.slow
def test_an_unreachable_zookeeper_is_one_message() -> None:
    """The command waits for ten seconds. The library that it uses logs nothing meanwhile."""
    (port,) = free_ports(1)
    done = subprocess.run(
        [*PROGRAM, "topics", "list", "--service-url", f"zk://127.0.0.1:{port}/x"], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    message, advice = done.stderr.splitlines()
    assert message.startswith(f"Error: No ZooKeeper server of 127.0.0.1:{port} answered within")
    assert advice.startswith("Check that the servers run")


def test_a_terminal_shows_what_a_long_command_does_and_a_pipe_does_not(url: str, cluster: Cluster) -> None:
    with cluster.begin() as txn:
        txn.append("t", [{"n": 1}])
        txn.commit()
    piped = subprocess.run([*PROGRAM, "verify", "t"], env=environment(TXNSEGMENT_SERVICE_URL=url), capture_output=True, timeout=60)
    assert (piped.returncode, piped.stderr) == (0, b"")
    code, screen = on_a_terminal(url, "", "verify", "t")
    assert code == 0
    assert "Reading every part of t: 1 parts" in screen
    assert "All are sound." in screen
