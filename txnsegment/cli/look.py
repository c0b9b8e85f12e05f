"""`txnsegment ui|top`: look at a cluster. Neither changes anything."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from metadata.common.errors import ConfigurationError, TxnSegmentError, Unavailable
from txnsegment.cli.operations import stop_signals
from txnsegment.cli.shown import AsJson, PlainFormatter, ServiceUrl, console, given_url, say, show_json

if TYPE_CHECKING:
    from txnsegment.look.watcher import Watcher

PACKAGES = ("starlette", "uvicorn", "jinja2")

TOKEN = "TXNSEGMENT_UI_TOKEN"


def ui(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of the page (0: a free port).")] = 8080,
    host: Annotated[
        str, typer.Option(help="The address to serve the page on. One beyond this machine needs a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN,
            help="Ask each browser for this token. Other users of this machine can see an option: prefer the variable.",
        ),
    ] = None,
    service_url: ServiceUrl = None,
) -> None:
    """Serve a web page that shows the cluster, until SIGTERM or SIGINT: topics, transactions, subscriptions, storage, health, and
    /metrics for Prometheus. The page changes nothing. Install it with: pip install 'txnsegment\\[ui]'
    """
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise ConfigurationError(
            f"The page needs {', '.join(PACKAGES)}, and this Python has no {', '.join(missing)}.",
            advice="pip install 'txnsegment[ui]' (txnsegment top shows the same figures in a terminal).",
        )
    from txnsegment.ui.access import Gate  # imported late, because only this command needs these packages
    from txnsegment.ui.server import served

    gate = Gate(host, token)
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # it warns each second of a server that is gone; the watcher says it once
    watcher = _watcher(given_url(context, service_url))
    with stop_signals() as stop, served(watcher, gate, host, port, stop.set) as bound:
        watcher.start()
        try:
            named = f"[{host}]" if ":" in host else host
            say(f"The cluster is shown at http://{named}:{bound}/ until you press Ctrl-C. The page changes nothing.")
            sys.stdout.flush()
            stop.wait()
        finally:
            watcher.close()


def top(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end (the default in a pipe).")] = False,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Show the cluster in the terminal, refreshed until Ctrl-C: topics, open transactions, subscriptions, health."""
    from txnsegment.cli.frame import frame  # imported late, because it takes long to load

    watcher = _watcher(given_url(context, service_url))
    if once or json or not sys.stdout.isatty():
        try:
            watcher.tick()
        finally:
            watcher.close()
        trouble = watcher.board.trouble
        if trouble is not None:
            raise TxnSegmentError(trouble.message, advice=trouble.advice)
        if json:
            show_json(
                {"seen": watcher.board.seen, "subscriptions": watcher.board.subscriptions, "findings": watcher.board.findings}
            )
        else:
            console().print(frame(watcher.board, 0.0))
        return
    from rich.live import Live

    try:
        with stop_signals() as stop, Live(console=console(), screen=True, auto_refresh=False) as live:
            while not stop.is_set():
                watcher.tick()
                live.update(frame(watcher.board, watcher.now_s, live.console.size.height), refresh=True)
                stop.wait(1)
    finally:
        watcher.close()


def _watcher(service_url: str | None) -> Watcher:
    """Return a watcher of the cluster. Raises an error for a cluster that does not exist or cannot be used. If the store does not
    answer, no error is raised, because the watcher tries again.
    """
    from txnsegment.look.reading import Looker, open_to_look  # imported late, because pyspark takes long to load
    from txnsegment.look.watcher import Watcher

    ready: list[Looker] = []
    try:
        ready.append(Looker(open_to_look(service_url)))
    except Unavailable as error:
        say(f"The store does not answer yet: {error}", err=True)
    return Watcher(lambda: ready.pop() if ready else Looker(open_to_look(service_url)))
