"""`txnsegment init|sweep|verify|doctor`."""

from __future__ import annotations

import difflib
import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ledgers.plain_text import shown
from metadata.common.errors import ConfigurationError, OptionError
from metadata.common.option_times import seconds_of
from metadata.common.options import integer
from pulsar_protocol.schemes import is_pulsar
from txnsegment.cli.shown import (
    AsJson,
    PlainFormatter,
    ServiceUrl,
    as_json,
    console,
    given_url,
    opened,
    say,
    show_json,
    show_table,
    size,
)
from txnsegment.cli.working import working

if TYPE_CHECKING:
    from metadata.maintenance.sweeper import SweepReport
    from metadata.records.cluster_records import Settings


def init(
    service_url: Annotated[str, typer.Argument(metavar="URL", help="file:///path or zk://host:port/chroot.")],
    ledgers: Annotated[
        str | None, typer.Option(metavar="URI", help="The folder or bucket of the ledgers; nothing else may be in it.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the cluster; may be repeated.")
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Make this store the owner of its cluster's ledgers, after the store was moved or copied."
        ),
    ] = False,
) -> None:
    """Create a cluster. The cluster remembers where its ledgers are, so that its URL alone is enough later. Repeating the command
    changes nothing.

    With --take-over: make this store the owner of its cluster's ledgers, in place of the store that owns them now. The other
    store cannot be used any more; stop its processes first.
    """
    from metadata.cluster.cluster import open_cluster  # imported late, because pydantic takes long to load
    from metadata.cluster.cluster import take_over as take_over_root  # imported late for the same reason

    if is_pulsar(service_url):
        raise OptionError(
            "A Pulsar cluster is not created by txnsegment.",
            advice="Leave `txnsegment init` out: give the URL to reads and writes as it is.",
        )
    wanted = parse_settings(settings or [])
    if take_over:
        if ledgers is not None or settings:
            raise OptionError(
                "--take-over is for an existing cluster, whose ledgers and settings are fixed.",
                advice="Leave --ledgers and --set out.",
            )
        done = take_over_root(service_url)
        say("The store owns its ledgers now." if done else "The store owned its ledgers already. Nothing was changed.")
    cluster = open_cluster(service_url, ledgers=ledgers, settings=wanted)
    try:
        if settings and cluster.settings != wanted:
            raise ConfigurationError(
                f"The cluster {cluster.url} exists already, with other settings: {_listed(cluster.settings)}.",
                advice="Settings are fixed when a cluster is made; leave --set out, or use another chroot or folder.",
            )
        say(f"The cluster {cluster.url} keeps its ledgers in {cluster.storage.uri}.")
        say(f"Settings: {_listed(cluster.settings)}.")
    finally:
        cluster.close()


def parse_settings(given: Sequence[str]) -> Settings:
    """Return settings from `key=value` pairs; settings that are not given have their defaults.

    Raises OptionError for an unknown key (with the nearest known one), an invalid value, and values that exclude each other.
    """
    from pydantic import ValidationError  # imported late, because it takes long to load

    from metadata.records.cluster_records import Settings  # imported late for the same reason
    from metadata.records.json_records import why  # imported late for the same reason

    names = {alias.lower(): name for name in Settings.model_fields for alias in (name, _alias(name))}
    values: dict[str, int] = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals:
            raise OptionError(f"--set {pair!r} is not key=value.", advice="Write it like --set txnTimeoutMs=30000.")
        name = names.get(key.strip().lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), [_alias(n).lower() for n in Settings.model_fields], n=1, cutoff=0.0)[0]
            raise OptionError(f"There is no setting {key!r}.", advice=f"Did you mean {_alias(names[near])}?")
        if name in values:
            raise OptionError(f"The setting {_alias(name)} is given twice.", advice="Give it once.")
        values[name] = integer(0 if name == "deadline_allowance_ms" else 1)(f"--set {_alias(name)}", text)
    try:
        return Settings(**values)
    except ValidationError as error:
        raise OptionError(
            f"These settings do not fit each other: {why(error)}.",
            advice="Change one of them; a setting that is not given has its default (docs/operations.md, Sweeping).",
        ) from error


def sweep(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Sweep once and end (the default).")] = False,
    every: Annotated[str | None, typer.Option(metavar="10s", help="Sweep at this interval until SIGTERM or SIGINT.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve Prometheus metrics on this port (0: a free port).")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address to serve the metrics on.")] = "127.0.0.1",
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Abort timed-out transactions; settle, fold and expire records; trim, compact, and delete orphans (--every: hourly)."""
    if every is None:
        if metrics_port is not None:
            raise OptionError("--metrics-port is for a sweeper that keeps running.", advice="Add --every 10s.")
        with opened(context, service_url) as cluster, working("Sweeping"):
            report = cluster.sweep()
        _tell(report, json)
        return
    if once:
        raise OptionError("--once and --every exclude each other.", advice="Give one of the two.")
    from txnsegment.sweeping import (  # imported late, because only this command serves metrics
        DriversSeen,
        metrics_served,
        sweep_until,
    )

    seconds = duration("--every", every)
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    drivers = None if metrics_port is None else DriversSeen()
    metrics = nullcontext(None) if metrics_port is None else metrics_served(metrics_host, metrics_port, drivers)
    with opened(context, service_url) as cluster, stop_signals() as stop, metrics as port:
        if port is not None:
            say(f"Metrics: http://{metrics_host}:{port}/metrics")
        told = partial(_tell, json=json)
        sweep_until(stop, cluster, seconds, told=told, lags=metrics_port is not None, drivers=drivers)


def duration(name: str, text: str) -> float:
    """Return the seconds of a number with its unit: `500ms`, `10s`, `5m`, `1h`. Raises OptionError for any other text, such as a
    number without a unit. Guards against failure A12 (protocol.md section 9).
    """
    seconds = seconds_of(text)
    if not seconds:
        raise OptionError(
            f"{name} is {text!r}, which is not a duration.", advice="Write a number and its unit: 500ms, 10s, 5m or 1h."
        )
    return seconds


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set. So the current pass finishes, and the store is closed properly."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(report: SweepReport, json: bool) -> None:
    if json:
        show_json(report)
        return
    done = [f"{name.replace('_', ' ')} {count}" for name, count in vars(report).items() if count]
    say(f"Swept: {', '.join(done) or 'nothing to do'}.")


def verify(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="topic://tenant/namespace/name, a bare name, or persistent://..")],
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Read every committed part and compare it with its record and checksums. Exit code 1 if a part is damaged."""
    with opened(context, service_url) as cluster, working(f"Reading every part of {topic}") as done:
        found = cluster.verify(topic, told=lambda so_far: done(f"{so_far.parts} parts, {size(so_far.bytes)}"))
    if json:
        show_json(found)
    else:
        say(f"{found.topic} up to {found.cut}: {found.parts} parts, {found.rows} rows, {size(found.bytes)}.")
        if found.damaged:
            rows = [(d.segment, d.first, d.last, d.rows, d.path, d.problem) for d in found.damaged]
            show_table(("SEGMENT", "FIRST", "LAST", "ROWS", "FILE", "PROBLEM"), rows, empty="")
            say(f"{len(found.damaged)} damaged. Restore these files from a copy.")
        else:
            say("All are sound.")
    if found.damaged:
        raise typer.Exit(1)


def doctor(context: typer.Context, json: AsJson = False, service_url: ServiceUrl = None) -> None:
    """Check Java, Spark, store, storage, clock and stuck transactions. Exit code 1 if a check fails."""
    from txnsegment import doctor as examination  # imported late, because no other command needs it

    styles = {examination.Health.OK: "green", examination.Health.WARN: "yellow", examination.Health.FAIL: "bold red"}
    found = []
    for finding in examination.examine(given_url(context, service_url)):
        found.append(finding)
        if not json:
            step = f"\n{'':18}{finding.next_step}" if finding.next_step else ""
            console().print(
                Text.assemble(
                    (f"{finding.health:<5}", styles[finding.health]),
                    f"{finding.check:<13}{shown(finding.message + step, lines=True)}",
                )
            )
    if json:
        show_json(found)
    if any(finding.health is examination.Health.FAIL for finding in found):
        raise typer.Exit(1)


def _alias(name: str) -> str:
    from metadata.records.cluster_records import Settings  # imported late, because pydantic takes long to load

    return Settings.model_fields[name].alias or name


def _listed(settings: Settings) -> str:
    values: dict[str, Any] = as_json(settings.model_dump(by_alias=True))
    return ", ".join(f"{key}={value}" for key, value in values.items())
