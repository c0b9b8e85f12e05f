"""`txnsegment top`: one frame in a pipe, a refreshed screen on a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from ledgers.plain_text import HARMFUL
from tests.txnsegment.cli.test_cli import undecided
from tests.txnsegment.cli.test_cli_process import PROGRAM, environment
from tests.txnsegment.look.test_look_reading import commit, make
from tests.txnsegment.ui.test_ui_pages import HOSTILE, board
from txnsegment import Cluster, connect
from txnsegment.cli.app import build
from txnsegment.cli.frame import frame
from txnsegment.look.watcher import Board


@pytest.fixture
def run(url: str) -> Callable[..., Result]:
    def call(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(build(), ["--service-url", url, "top", *arguments])
        assert done.exit_code == code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done

    return call


def test_a_pipe_gets_one_frame(run: Callable[..., Result], cluster: Cluster) -> None:
    make(cluster)
    cluster.subscriptions.create("t", "billing")
    commit(cluster, rows=7)
    number = undecided(cluster, "0_9999", deadline_in_ms=600_000)
    for arguments in ((), ("--once",)):
        text = run(*arguments).stdout
        assert re.search(rf"topic://public/default/t +2/2 +7 +[\d.]+ kB +{number - 1} +1 +1 undecided", text)
        assert re.search(r"0_9999 +OPEN +", text)
        assert re.search(r"billing +7 ", text)
        assert "\x1b" not in text
    found = json.loads(run("--json").stdout)
    assert found["seen"]["topics"][0]["horizon"] == number - 1
    assert [s["lag"]["rows"] for s in found["subscriptions"]] == [7]
    assert {f["check"] for f in found["findings"]} >= {"store", "log"}


def test_an_empty_cluster_has_a_frame(run: Callable[..., Result], cluster: Cluster) -> None:
    assert "No transaction is open." in run().stdout


def test_a_cluster_that_does_not_exist_is_an_error(run: Callable[..., Result], url: str) -> None:
    assert "Error:" in run("--once", code=1).stderr
    assert not Path(url.removeprefix("file://")).exists()


def shown(board: Board, width: int = 200, height: int | None = None) -> str:
    console = Console(width=width, color_system=None, force_terminal=False, record=True, file=io.StringIO())
    console.print(frame(board, 12.0, height))
    return console.export_text()


def test_hostile_text_commands_no_terminal() -> None:
    text = shown(board(HOSTILE), width=1000)
    assert not HARMFUL.search(text.replace("\n", ""))
    assert r"\x1b[2J\u202e\x00" in text


def test_a_frame_fits_a_small_terminal_and_says_what_it_leaves_out() -> None:
    text = shown(board("topic://a/b/c"), height=10)
    assert "and 298 more topics" in text
    assert "The cluster cannot be read, since 7 s." in text


def test_a_terminal_is_refreshed_until_a_signal(url: str) -> None:
    with connect(url) as cluster:
        make(cluster)
        main, terminal = pty.openpty()
        try:
            process = subprocess.Popen(
                [*PROGRAM, "top", "--service-url", url],
                env=environment(TERM="xterm", COLUMNS="150", LINES="40"),
                stdin=terminal,
                stdout=terminal,
                stderr=subprocess.PIPE,
            )
            os.close(terminal)
            seen = ""
            while "topic://public/default/t" not in seen:
                seen += os.read(main, 65536).decode(errors="replace")
            assert "\x1b[?1049h" in seen  # the screen of the shell stays as it was
            commit(cluster, rows=7)
            seen = ""
            while not re.search(r"topic://public/default/t +2/2 +7 ", seen):
                seen += os.read(main, 65536).decode(errors="replace")
            process.send_signal(signal.SIGTERM)
            while "\x1b[?1049l" not in seen:
                seen += os.read(main, 65536).decode(errors="replace")
            _, err = process.communicate(timeout=30)
            assert (process.returncode, err) == (0, b"")
        finally:
            os.close(main)
