"""`txnsegment subscriptions create|list|describe|seek|delete`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from metadata.common.errors import OptionError
from metadata.common.option_times import timestamp_ms
from txnsegment.cli.shown import (
    AsJson,
    Namespace,
    ServiceUrl,
    opened,
    place,
    say,
    show_facts,
    show_json,
    show_table,
    within,
)

if TYPE_CHECKING:
    from metadata.read.backlog import Lag
    from txnsegment.subscriptions import Where

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, seek and delete subscriptions.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="topic://tenant/namespace/name, a bare name, or persistent://..")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscription.")]
Place = Annotated[
    str,
    typer.Option(metavar="PLACE", help="earliest, latest, a number of the log, or a time such as 2025-01-01T00:00:00Z."),
]


@app.command()
def create(context: typer.Context, topic: Topic, name: Name, start: Place = "earliest", service_url: ServiceUrl = None) -> None:
    """Create a subscription: a cursor for each segment of the topic (a persistent:// topic has one cursor)."""
    with opened(context, service_url) as cluster:
        made = cluster.subscriptions.create(topic, name, start=_place("--start", start))
    say(f"Created the subscription {made.name} of {made.topic}; {_shown(made.lag)}.")


@app.command("list")
def list_subscriptions(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="List this topic's only.")] = None,
    namespace: Namespace = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """List subscriptions with their lag."""
    with opened(context, service_url) as cluster:
        found = cluster.subscriptions.list(topic, **within(cluster, namespace))
        where = "" if topic is not None else place(cluster, namespace)
    if json:
        show_json(found)
        return
    rows = [(s.topic, s.name, *_columns(s.lag)) for s in found]
    show_table(("TOPIC", "SUBSCRIPTION", "LAG ROWS", "LAG BYTES", "LAG SECONDS"), rows, empty=f"There are no subscriptions{where}.")


@app.command()
def describe(context: typer.Context, topic: Topic, name: Name, json: AsJson = False, service_url: ServiceUrl = None) -> None:
    """Show a subscription: its cursors, pending acks of transactions, and lag."""
    with opened(context, service_url) as cluster:
        found = cluster.subscriptions.describe(topic, name)
    if json:
        show_json(found)
        return
    show_facts([("topic", found.topic), ("subscription", found.name), ("lag", _shown(found.lag))])
    say()
    rows = [(c.segment, c.mark_delete or "none", _few(c.acked), _few(tuple(c.claims)), *_columns(c.lag)) for c in found.cursors]
    headings = ("SEGMENT", "MARK DELETE", "ACKED BEYOND", "CLAIMED BY", "LAG ROWS", "LAG BYTES", "LAG SECONDS")
    if getattr(found, "consumers", 0):
        say("A consumer is connected, so the positions are not shown. A broker forgets a consumer a minute after its end.")
        return
    show_table(headings, rows, empty="The topic has no segments.")


@app.command()
def seek(context: typer.Context, topic: Topic, name: Name, to: Place, service_url: ServiceUrl = None) -> None:
    """Move the cursors to a place: every row before it counts as acknowledged, no row after it does."""
    with opened(context, service_url) as cluster:
        moved = cluster.subscriptions.seek(topic, name, _place("--to", to))
    say(f"Moved the subscription {moved.name} of {moved.topic} to {to}; {_shown(moved.lag)}.")


@app.command()
def delete(context: typer.Context, topic: Topic, name: Name, service_url: ServiceUrl = None) -> None:
    """Delete a subscription."""
    with opened(context, service_url) as cluster:
        cluster.subscriptions.delete(topic, name)
    say(f"Deleted the subscription {name} of {topic}.")


def _place(option: str, text: str) -> Where:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if word.isdecimal() and len(word) < 19:
        return int(word)
    if "-" not in word[1:]:
        raise OptionError(
            f"{option} {text!r} is no place in the log.",
            advice="Give earliest, latest, a log number, or a time such as 2025-01-01T00:00:00Z.",
        )
    return datetime.fromtimestamp(timestamp_ms(up=True)(option, text) / 1000, UTC)


def _few(texts: tuple[str, ...]) -> str:
    return "none" if not texts else ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def _columns(lag: Lag | None) -> tuple[object, object, str]:
    """Return the values of the three columns of a lag. `lag` is None for a Pulsar cluster, which does not tell the lag."""
    return ("unknown",) * 3 if lag is None else (lag.rows, lag.bytes, f"{lag.seconds:.1f}")


def _shown(lag: Lag | None) -> str:
    if lag is None:
        return "its lag is unknown"
    return f"{lag.rows} rows ({lag.bytes} bytes) to get, the first waits {lag.seconds:.1f} s" if lag.rows else "nothing to get"
