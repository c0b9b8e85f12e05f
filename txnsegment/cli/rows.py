"""`txnsegment topics read` and `txnsegment topics write`: the rows of a topic as a table, JSON lines or CSV."""

from __future__ import annotations

import csv
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from ledgers import plain_text
from metadata.common.errors import OptionError, TxnSegmentError
from metadata.common.option_times import timestamp_ms
from txnsegment.cli.shown import AsJson, ServiceUrl, as_json_text, opened, say, show_json, show_table
from txnsegment.cli.working import working

if TYPE_CHECKING:
    import pyarrow as pa

    from metadata.write.write_set import Committed
    from txnsegment.cluster import Cluster

SHOWN = 20
"""How many rows a table has at most, by default."""
Place = Annotated[
    str, typer.Option(metavar="PLACE", help="earliest, latest, a number of the log, or a time such as 2025-01-01T00:00:00Z.")
]


class Format(StrEnum):
    """The form of rows for programs."""

    JSON = "json"
    CSV = "csv"


def read(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, or one segment://...")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="The largest number of rows; default: 20 in a table, all with --format.")
    ] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="The columns to show, in this order.")] = None,
    start: Place = "earliest",
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more rows until Ctrl-C; as JSON lines by default.")] = False,
    format_: Annotated[Format | None, typer.Option("--format", help="JSON lines, or CSV with the names of the columns.")] = None,
    message_ids: Annotated[bool, typer.Option("--message-ids", help="Add __messageId, ledger:entry:index.")] = False,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Show the committed rows of a topic, in the order of their transactions. With --follow only the rows of each segment, and of
    each key, are in order. No subscription is needed.
    """
    if json and format_ is Format.CSV:
        raise OptionError("--json and --format csv are both given.", advice="Give one of the two.")
    form = Format.JSON if json or (follow and format_ is None) else format_
    wanted = None if columns is None else [one.strip() for one in columns.split(",")]
    with opened(context, service_url) as cluster:
        metadata = cluster.topics.metadata_columns if message_ids else frozenset()
        batches = _batches(cluster, name, wanted, start, follow=follow, message_ids=message_ids)
        try:
            if form is None:
                _show(name, batches, SHOWN if limit is None else limit, metadata)
            else:
                _write_out(batches, form, limit, metadata)
        except KeyboardInterrupt:
            if not follow:
                raise
        except BrokenPipeError:  # `| head` has enough; the interpreter would complain when it flushes the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _batches(
    cluster: Cluster, name: str, columns: list[str] | None, start: str, *, follow: bool, message_ids: bool
) -> Iterator[pa.RecordBatch]:
    place = _place(start)
    if follow:
        return cluster.topics.follow(name, columns=columns, start=place, metadata=message_ids)
    if not cluster.rows(name, 1).columns:
        return iter(())  # the topic has no schema yet, so nothing was written
    return iter(cluster.topics.read(name, columns=columns, start=place, metadata=message_ids))


def _place(text: str) -> str | int | datetime:
    word = text.strip()
    if word.isdecimal() and len(word) < 19:
        return int(word)
    if word.lower() in ("earliest", "latest") or word.startswith("{") or "-" not in word[1:]:
        return word
    return datetime.fromtimestamp(timestamp_ms(up=True)("--start", word) / 1000, UTC)


def _rows(batches: Iterator[pa.RecordBatch], metadata: Collection[str]) -> Iterator[dict[str, Any]]:
    from txnsegment.rows import json_rows, with_message_id

    return json_rows(with_message_id(batch, metadata) if metadata else batch for batch in batches)


def _show(name: str, batches: Iterator[pa.RecordBatch], limit: int, metadata: Collection[str]) -> None:
    rows = list(islice(_rows(batches, metadata), limit))
    columns = list(rows[0]) if rows else []
    show_table(columns, [[row[column] for column in columns] for row in rows], empty=f"{name} has no committed rows.")


def _write_out(batches: Iterator[pa.RecordBatch], form: Format, limit: int | None, metadata: Collection[str]) -> None:
    rows = islice(_rows(batches, metadata), limit)
    if form is Format.JSON:
        for row in rows:
            show_json(row)
        return
    heading: list[str] = []
    for row in rows:
        if list(row) != heading:  # the first row, and the first with a new column
            heading = list(row)
            _csv_line(heading)
        _csv_line([_field(value) for value in row.values()])


def _csv_line(fields: list[str]) -> None:
    class Out:
        def write(self, text: str) -> None:
            typer.echo(plain_text.shown(text, lines=True) if sys.stdout.isatty() else text, nl=False)

    # Python 3.11 does not quote a carriage return, and a reader of CSV takes a bare one for the end of a line
    needs_quotes = any("\r" in field for field in fields)
    csv.writer(Out(), lineterminator="\n", quoting=csv.QUOTE_ALL if needs_quotes else csv.QUOTE_MINIMAL).writerow(fields)


def _field(value: Any) -> str:
    """Return a value as a field of CSV: text as it is, null as nothing, anything else as JSON."""
    return "" if value is None else value if isinstance(value, str) else as_json_text(value)


def write(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="topic://tenant/namespace/name, a bare name, or persistent://..")],
    format_: Annotated[
        Format, typer.Option("--format", help="JSON lines, or CSV whose first line names the columns.")
    ] = Format.JSON,
    rows: Annotated[int, typer.Option(min=1, help="How many rows a transaction has.")] = 10_000,
    app: Annotated[str | None, typer.Option(help="With --version: the whole input is one transaction, which commits once.")] = None,
    version: Annotated[int | None, typer.Option(help="The version of the application; versions rise.")] = None,
    key: Annotated[str | None, typer.Option(metavar="COL", help="The column whose hash routes rows.")] = None,
    segments: Annotated[int | None, typer.Option(help="The number of segments of a topic that this command creates.")] = None,
    service_url: ServiceUrl = None,
) -> None:
    """Write rows from the standard input, in the types of the topic's columns. A topic that does not exist is created, and its
    first rows decide its columns. An empty field of CSV is null.
    """
    from txnsegment.incoming import batches, csv_lines, json_lines  # imported late, because pyarrow and pyspark take long to load

    source = typer.get_binary_stream("stdin")
    text = format_ is Format.CSV
    lines = csv_lines(source) if text else json_lines(source)
    done = [0, 0]
    interrupts = Interrupts()
    with interrupts, opened(context, service_url, create=True) as cluster, working(f"Writing to {name}") as told:
        found = batches(lines, cluster.topics.columns_now(name), rows, text=text)

        def count(committed: Committed) -> None:
            if committed.skipped and app is not None:
                say(f"Version {version} of {app} is committed already; nothing was written.")
                return
            done[0], done[1] = done[0] + 1, done[1] + committed.rows
            told(f"{done[1]:,} rows committed")

        def commit(given: Any) -> None:
            with cluster.begin(app=app, version=version) as txn:
                txn.append(name, given, key=key, segments=segments)
                with interrupts.held():
                    count(txn.commit())

        try:
            if app is not None or version is not None:
                commit(found)
            else:
                for batch in found:
                    commit(batch)
        except (TxnSegmentError, KeyboardInterrupt) as error:
            _note(done, error)
            raise
    say(_said(done, name))


class Interrupts:
    """Holds back Ctrl-C while a transaction is committed, so that the command can say which rows are committed. A second Ctrl-C is
    not held back. In another thread than the main one, which gets no signals, it does nothing.
    """

    def __init__(self) -> None:
        self._holds = self._came = False
        self._before: Any = None
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)

    def _take(self, *_: object) -> None:
        if not self._holds or self._came:
            raise KeyboardInterrupt
        self._came = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back Ctrl-C in the block, and raise it at the end of the block."""
        self._holds = True
        try:
            yield
        finally:
            self._holds = False
        if self._came:
            raise KeyboardInterrupt


def _note(done: list[int], error: BaseException) -> None:
    told = f"Before that, {done[1]} rows were committed, in {_transactions(done[0])}." if done[0] else "No row was written before."
    error.add_note(told)
    if isinstance(error, KeyboardInterrupt):
        say(told, err=True)


def _said(done: list[int], name: str) -> str:
    return f"Wrote {done[1]} rows to {name} in {_transactions(done[0])}."


def _transactions(count: int) -> str:
    return f"{count} transaction{'' if count == 1 else 's'}"
