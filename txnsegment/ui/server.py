"""Runs the page of `txnsegment ui` until it is stopped."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from metadata.common.errors import ConfigurationError
from txnsegment.look.watcher import Watcher
from txnsegment.ui.access import Gate
from txnsegment.ui.app import make_app

PATIENCE_S = 3
"""How long the end of the server waits for answers that are being sent."""


@contextmanager
def served(watcher: Watcher, gate: Gate, host: str, port: int, ended: Callable[[], object]) -> Iterator[int]:
    """Serve the page in a thread of its own, and yield the port (`port` 0 takes a free one). `ended`: is called when the server has
    ended, also by a failure. Raises ConfigurationError if the port cannot be used. Raises the error that ended the server.
    """
    listening = _bound(host, port)
    config = uvicorn.Config(
        make_app(watcher, gate),
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=PATIENCE_S,
    )
    server = uvicorn.Server(config)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            server.run(sockets=[listening])
        except BaseException as error:  # uvicorn also raises SystemExit
            failed.append(error)
        finally:
            ended()

    # uvicorn takes over signals only in the main thread; the command handles them
    thread = threading.Thread(target=run, name="txnsegment-ui", daemon=True)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(2 * PATIENCE_S)
        listening.close()
    for error in failed:
        raise ConfigurationError(
            f"The web server has ended: {type(error).__name__}: {error}.", advice="Its log says more. Start the page again."
        ) from error


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigurationError(
            f"The page cannot be served on {host}:{port}: {getattr(error, 'strerror', None) or error}.",
            advice="Choose another --port (0 takes a free one) or --host.",
        ) from error
