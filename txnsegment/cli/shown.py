"""Functions that all commands share: they open the cluster and print answers."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledgers import plain_text
from metadata.common.errors import OptionError, TxnSegmentError
from pulsar_protocol.schemes import is_pulsar
from txnsegment.formats import moment as moment
from txnsegment.formats import size as size

if TYPE_CHECKING:
    from txnsegment.cluster import Cluster

ServiceUrl = Annotated[
    str | None,
    typer.Option("--service-url", metavar="URL", help="The cluster; default: the variable TXNSEGMENT_SERVICE_URL."),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", metavar="TENANT/NAMESPACE", help="Which one of a Pulsar cluster; default: public/default."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]


def opened(context: typer.Context, service_url: str | None, *, create: bool = False) -> Cluster:
    """Return the cluster of `--service-url` (before or after the command) or of the environment variable. `create`: whether to
    create a missing embedded cluster. Only `topics create` and `topics write` do so. For other commands a mistyped URL would look
    like an empty cluster.
    """
    from txnsegment.cluster import cluster_at  # imported late, because pyspark and pydantic take long to load

    return cluster_at(given_url(context, service_url), create=create)


def given_url(context: typer.Context, service_url: str | None) -> str | None:
    before: str | None = context.find_root().params.get("service_url")
    return service_url if service_url is not None else before


def within(cluster: Cluster, namespace: str | None) -> dict[str, str]:
    """Return the argument for the namespace of a list. Raises OptionError for clusters whose lists have all namespaces."""
    if namespace is not None and not is_pulsar(cluster.url):
        raise OptionError(
            f"--namespace is for Pulsar clusters. A list of {cluster.url} has the topics of all namespaces.",
            advice="Leave it out. `topics list --pattern 'topic://TENANT/NAMESPACE/.*'` selects by name.",
        )
    return {} if namespace is None else {"namespace": namespace}


def place(cluster: Cluster, namespace: str | None) -> str:
    """Return the words that say what an empty list lists: " in public/default", or nothing if a list has all namespaces."""
    return f" in {namespace or 'public/default'}" if is_pulsar(cluster.url) else ""


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines for people. All commands print through this function or the functions below. These functions escape control
    characters, which would change the terminal. Such characters may come from names, values and errors of other programs
    (`ledgers.plain_text`).
    """
    typer.echo(plain_text.shown(text, lines=True), err=err)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone. `yes`: the user has answered by `--yes`. Raises OptionError if nobody can answer,
    because the standard input is no terminal. Ends the command if the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise OptionError(
            f"{question.partition('?')[0]}: the command asks before it does that, and no terminal can answer.",
            advice="Give --yes to do it without a question. Nothing was done.",
        )
    if not typer.confirm(plain_text.shown(question), err=True):
        say("Nothing was done.", err=True)
        raise typer.Exit(1)


class PlainFormatter(logging.Formatter):
    """Formats log lines of commands, escaped as in `say`."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_text.shown(super().format(record), lines=True)


def show_error(error: TxnSegmentError) -> None:
    """Print the message of an error, then its advice and notes, on stderr."""
    say(f"Error: {error.message}", err=True)
    for line in (error.advice, *getattr(error, "__notes__", ())):
        if line:
            say(line, err=True)


def show_json(value: object) -> None:
    typer.echo(as_json_text(value))


def as_json_text(value: object, indent: int | None = None) -> str:
    r"""Return a value as JSON for programs and terminals. Characters that a terminal would obey are escaped as `\uXXXX`."""
    text = json.dumps(as_json(value), ensure_ascii=False, indent=indent)
    return plain_text.HARMFUL.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def as_json(value: object) -> Any:
    """Return a value in the form that JSON can represent. A dataclass becomes an object with camelCase names (as in the records),
    and a Spark type becomes Spark's JSON.
    """
    from pyspark.sql.types import DataType  # imported late, because it takes long to load

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_camel(f.name): as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, DataType):
        return value.jsonValue()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value]
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def console() -> Console:
    """Return the terminal for output. Output into a file or a pipe is neither wrapped nor cut off."""
    return Console(file=sys.stdout, soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 10_000)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table, or the text `empty` if it has no rows."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(plain_text.shown(column)), overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else plain_text.shown(str(value))) for value in row))
    if table.row_count:
        console().print(table)
    else:
        say(empty)


def show_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print one object, a line for each fact. Facts with the value None are left out."""
    known = [(name, value) for name, value in facts if value is not None]
    width = max(len(name) for name, _ in known)
    for name, value in known:
        say(f"{name:<{width}}  {plain_text.shown(str(value))}")
