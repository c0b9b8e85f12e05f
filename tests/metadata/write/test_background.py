"""Tests of the background thread of commits: an interrupt while it is started loses no job, and does not break its end."""

from __future__ import annotations

import threading

import pytest

from metadata.write.background import Background


@pytest.mark.parametrize("begins", [True, False])
def test_an_interrupt_while_the_thread_starts_does_not_break_the_close(monkeypatch: pytest.MonkeyPatch, begins: bool) -> None:
    """Ctrl-C ends the call that starts the thread. The thread then begins a moment later, or it never begins."""
    done: list[str] = []
    background = Background(lambda: done.append("share"))
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if begins:
            start(threading.Timer(0.05, start, (thread,)))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            background(lambda: done.append("job"))
    background.close()
    assert done == (["job", "share"] if begins else [])


def test_jobs_of_an_interrupted_start_are_done_with_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    background = Background(lambda: None)

    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            background(lambda: done.append(1))
    background(lambda: done.append(2))
    background.close()
    assert done == [1, 2]
