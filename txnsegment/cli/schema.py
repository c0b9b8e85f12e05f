"""`txnsegment topics schema TOPIC`: show, list and register schemas, and set the compatibility mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledgers.json_text import read_json
from metadata.common.errors import OptionError, SchemaError
from txnsegment.cli.shown import AsJson, ServiceUrl, as_json_text, moment, opened, say, show_facts, show_json, show_table

if TYPE_CHECKING:
    from txnsegment.topics import SchemaDescription


def schema(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="topic://tenant/namespace/name, or a bare name.")],
    version: Annotated[int | None, typer.Option(min=0, help="Show this version; default: the last one.")] = None,
    history: Annotated[bool, typer.Option("--history", help="List all versions.")] = False,
    register: Annotated[
        Path | None, typer.Option("--set", metavar="FILE", help="Make this Avro schema (.avsc, JSON) the next version.")
    ] = None,
    compatibility: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="Check new versions by: none, backward, forward, full, or .._transitive."),
    ] = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Show a topic's Avro schema, list its versions, register a version, or set the compatibility mode (applied before --set)."""
    if sum((version is not None, history, register is not None or compatibility is not None)) > 1:
        raise OptionError(
            "--version, --history, and --set or --compatibility exclude each other.", advice="Give one of them at a time."
        )
    with opened(context, service_url) as cluster:
        topics = cluster.topics
        if compatibility is not None:
            mode = topics.set_compatibility(name, compatibility)
            if not json:
                say(f"New schemas of {name} are checked by {mode} from now on.")
        if register is not None:
            made = topics.set_schema(name, _text(register))
            if not json:
                say(f"The schema of {made.topic} is version {made.version} now.")
        found = topics.schemas(name) if history else tuple(one for one in (topics.schema(name, version),) if one is not None)
        mode = topics.compatibility(name)
    if json:
        shown = [{**_object(one), "compatibility": mode} for one in found]
        show_json(shown if history else shown[0] if shown else None)
    elif history:
        rows = [(s.version, moment(s.created_ms), "registered" if s.registered else "from columns", _names(s)) for s in found]
        show_table(("VERSION", "CREATED", "AVRO", "COLUMNS"), rows, empty=f"{name} has no schema yet.")
    elif register is None and compatibility is None:
        _show(name, found, str(mode))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"The Avro schema {file} cannot be read: {error}.", advice="Give the path of an .avsc file.") from error


def _show(name: str, found: tuple[SchemaDescription, ...], mode: str) -> None:
    if not found:
        say(f"{name} has no schema yet: write to it, or register one (--set FILE). Compatibility: {mode}.")
        return
    (one,) = found
    origin = "registered" if one.registered else "made from the columns"
    show_facts(
        [
            ("topic", one.topic),
            ("version", one.version),
            ("created", moment(one.created_ms)),
            ("compatibility", mode),
            ("columns", _names(one)),
            ("avro", origin if one.avro is not None else f"none: {one.why}"),
        ]
    )
    if one.avro is not None:
        say()
        say(as_json_text(read_json(one.avro), indent=2))


def _names(one: SchemaDescription) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in one.columns)


def _object(one: SchemaDescription) -> dict[str, object]:
    return {
        "topic": one.topic,
        "version": one.version,
        "registered": one.registered,
        "avro": None if one.avro is None else read_json(one.avro),
        "why": one.why,
        "columns": one.columns,
        "createdMs": one.created_ms,
    }
