"""The page as users start it: a process of its own, on a real cluster, asked over HTTP."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from conformance.servers import ZooKeeperServer
from tests.txnsegment.cli.test_cli import undecided
from tests.txnsegment.cli.test_cli_process import PROGRAM, daemon, environment
from tests.txnsegment.look.test_look_reading import commit, make, records
from txnsegment import Cluster, connect

TOKEN = "a-token-of-some-length"


class Page(NamedTuple):
    """A served page. `address`: its URL, without a path."""

    process: subprocess.Popen[str]
    address: str

    def get(self, path: str = "/", **headers: str) -> str:
        with urllib.request.urlopen(urllib.request.Request(self.address + path, headers=headers), timeout=10) as answer:
            return str(answer.read().decode())

    def status(self, path: str = "/", **headers: str) -> int:
        """Return the status of an answer, also of one that leads elsewhere."""
        host = urllib.parse.urlsplit(self.address)
        connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=10)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def until(self, path: str, found: Callable[[str], bool]) -> str:
        """Ask again until a page has what is looked for."""
        end = time.monotonic() + 60
        while not found(page := self.get(path)):
            assert self.process.poll() is None
            assert time.monotonic() < end, page
            time.sleep(0.05)
        return page


@contextmanager
def page_of(url: str, *more: str, **variables: str) -> Iterator[Page]:
    with daemon("ui", "--port", "0", "--service-url", url, *more, **variables) as (process, out):
        line = out.readline()
        assert line, process.stderr.read() if process.stderr is not None else ""
        (address,) = (word for word in line.split() if word.startswith("http://"))
        yield Page(process, address.removesuffix("/"))


def series(text: str, name: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} "))


def test_the_page_follows_a_cluster_and_changes_nothing(cluster: Cluster, url: str) -> None:
    make(cluster)
    cluster.subscriptions.create("t", "s")
    with page_of(url) as page:
        page.until("/", lambda text: "topic://public/default/t" in text)
        done = commit(cluster, rows=9)
        number = undecided(cluster, "0_9999", deadline_in_ms=-60_000)  # a commit after it would abort it
        before = records(cluster)
        text = page.until("/transactions", lambda text: done in text)
        assert "0_9999" in page.until("/transactions?state=open", lambda text: "0_9999" in text)
        assert 'class="bad"' in text
        topic = page.get("/topic?name=" + urllib.parse.quote("topic://public/default/t"))
        assert f"Readers get no row above number {number - 1}" in topic
        assert "<svg" in topic
        page.until("/subscriptions", lambda text: ">s<" in text)
        assert str(cluster.ledgers) in page.get("/storage")
        page.until("/health", lambda text: "read, and belongs to this cluster" in text)
        metrics = page.until("/metrics", lambda text: series(text, "txnsegment_cluster_open_transactions") == 1)
        assert series(metrics, "txnsegment_cluster_up") == 1
        assert series(metrics, "txnsegment_cluster_overdue_transactions") == 1
        assert series(metrics, 'txnsegment_cluster_topic_rows{topic="topic://public/default/t"}') == 9
        assert records(cluster) == before


def test_answers_allow_nothing_but_their_own_style_and_script(url: str) -> None:
    connect(url).close()
    with page_of(url) as page:
        for path in ("/", "/metrics", "/static/ui.css", "/static/ui.js", "/none", "/static/none"):
            connection = http.client.HTTPConnection("127.0.0.1", urllib.parse.urlsplit(page.address).port, timeout=10)
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode()
            connection.close()
            assert answer.status == (404 if path.endswith("none") else 200)
            assert (answer.getheader("Content-Security-Policy") or "").startswith("default-src 'none'")
            assert answer.getheader("X-Content-Type-Options") == "nosniff"
            assert answer.getheader("Cache-Control") == "no-store"
            assert "http://" not in body.replace("http://www.w3.org/2000/svg", "")
            assert "https://" not in body
            assert "<style" not in body
            assert " style=" not in body
        assert page.status("/", Host="evil.example") == 421
        assert page.status("/metrics", Host=f"evil.example:{urllib.parse.urlsplit(page.address).port}") == 421
        connection = http.client.HTTPConnection("127.0.0.1", urllib.parse.urlsplit(page.address).port, timeout=10)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            connection.request(method, "/")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 405
        connection.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_a_token_each_page_asks_for_it(host: str, url: str) -> None:
    connect(url).close()
    with page_of(url, "--host", host, TXNSEGMENT_UI_TOKEN=TOKEN) as page:
        page = page._replace(address=page.address.replace("0.0.0.0", "127.0.0.1"))
        for path in ("/", "/topic?name=t", "/transactions", "/subscriptions", "/storage", "/health", "/none"):
            assert page.status(path) == 303
            assert page.status(path, Cookie="txnsegment_ui=wrong", Authorization="Bearer wrong") == 303
        assert page.status("/metrics") == 401
        assert "txnsegment_cluster_up" in page.get("/metrics", Authorization=f"Bearer {TOKEN}")
        assert 'type="password"' in page.get("/login")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with pytest.raises(urllib.error.HTTPError) as refused:
            opener.open(page.address + "/login", b"token=wrong", timeout=10)
        assert refused.value.code == 403
        with pytest.raises(urllib.error.HTTPError):
            opener.open(page.address + "/login", b"token=" + b"x" * 10_000, timeout=10)
        with opener.open(page.address + "/login", f"token={TOKEN}".encode(), timeout=10) as answer:
            assert answer.url == page.address + "/"
            assert 'aria-current="page">Overview' in answer.read().decode()
        assert page.status("/") == 303  # another browser


def test_the_token_is_not_shown_by_the_help(url: str) -> None:
    ran = subprocess.run(
        [*PROGRAM, "ui", "--help"], env=environment(TXNSEGMENT_UI_TOKEN=TOKEN), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0
    assert TOKEN not in ran.stdout


def refused(*arguments: str, **variables: str) -> str:
    ran = subprocess.run([*PROGRAM, "ui", *arguments], env=environment(**variables), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1, ran.stdout
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_what_cannot_be_served_is_an_error_with_what_to_do(url: str, tmp_path: Path) -> None:
    connect(url).close()
    assert "TXNSEGMENT_UI_TOKEN" in refused("--host", "0.0.0.0", "--service-url", url)
    assert "at least 16" in refused("--token", "short", "--service-url", url)
    assert str(tmp_path / "none") in refused("--service-url", f"file://{tmp_path}/none")
    assert not (tmp_path / "none").exists()
    assert "metrics of its brokers" in refused("--service-url", "pulsar://localhost:6650")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "--port" in refused("--port", str(taken.getsockname()[1]), "--service-url", url)


def test_without_its_packages_the_command_says_what_to_install(url: str) -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from txnsegment.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "ui", "--service-url", url], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 1
    assert "pip install 'txnsegment[ui]'" in ran.stderr


def test_a_server_that_ends_by_itself_ends_the_command_with_its_error(url: str) -> None:
    connect(url).close()
    code = (
        "import uvicorn; from txnsegment.cli.main import main\n"
        "def fails(*_, **__): raise OSError('no more descriptors')\n"
        "uvicorn.Server.run = fails; main()"
    )
    words = [sys.executable, "-c", code, "ui", "--port", "0", "--service-url", url]
    ran = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "The web server has ended: OSError: no more descriptors." in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_page_and_leaves_nothing(url: str, number: signal.Signals) -> None:
    connect(url).close()
    with page_of(url) as page:
        port = urllib.parse.urlsplit(page.address).port
        waiting = socket.create_connection(("127.0.0.1", port), timeout=10)  # a browser that keeps its connection
        waiting.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert waiting.recv(15) == b"HTTP/1.1 200 OK"
        page.process.send_signal(number)
        assert page.process.wait(timeout=30) == 0
        assert page.process.stderr is not None
        assert page.process.stderr.read() == ""
        waiting.close()
        with socket.create_server(("127.0.0.1", port or 0)):  # the port is free
            pass
        with pytest.raises(ProcessLookupError):
            os.kill(page.process.pid, 0)
    assert {f.name for f in Path(url.removeprefix("file://")).iterdir() if f.name.endswith(("-wal", "-shm"))} == set()


@pytest.mark.slow
def test_a_store_that_cannot_be_reached_is_shown_and_the_page_recovers(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zk") as server:
        url = f"zk://{server.hosts}/c"
        with connect(url, ledgers=f"file://{tmp_path}/ledgers") as cluster:
            make(cluster)
            commit(cluster)
            with page_of(url) as page:
                page.until("/", lambda text: "topic://public/default/t" in text)
                assert "belongs to this cluster" in page.until("/health", lambda text: "belongs" in text)
                server.stop()
                text = page.until("/", lambda text: "cannot be read" in text or "has not answered" in text)
                assert "topic://public/default/t" in text  # the last figures stay, with their age
                page.until("/metrics", lambda text: series(text, "txnsegment_cluster_up") == 0)
                server.start()
                page.until("/metrics", lambda text: series(text, "txnsegment_cluster_up") == 1)
                assert "cannot be read" not in page.get("/")
                done = commit(cluster)
                page.until("/transactions", lambda text: done in text)
