"""`txnsegment topics`: create, list, describe, split, merge, migrate, delete, read, write; schemas, properties, policies."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metadata.common.errors import OptionError
from pulsar_protocol.schemes import is_pulsar
from txnsegment.cli import rows
from txnsegment.cli.operations import duration
from txnsegment.cli.schema import schema
from txnsegment.cli.shown import (
    AsJson,
    Namespace,
    ServiceUrl,
    confirm,
    console,
    moment,
    opened,
    place,
    say,
    show_facts,
    show_json,
    show_table,
    within,
)
from txnsegment.cli.working import working

if TYPE_CHECKING:
    from txnsegment.topics import TopicDescription

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, split, merge, delete, read and write topics; their schemas.")

app.command()(schema)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="topic://tenant/namespace/name, a bare name, or persistent://..")]
Persistent = Annotated[str, typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/name.")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    segments: Annotated[int, typer.Option(help="The number of segments.")] = 1,
    key: Annotated[str | None, typer.Option(metavar="COL", help="The column whose hash routes rows.")] = None,
    schema: Annotated[str | None, typer.Option(metavar="DDL", help="The columns, such as 'id bigint, name string'.")] = None,
    service_url: ServiceUrl = None,
) -> None:
    """Create a topic."""
    from txnsegment.topics import PersistentDescription  # imported late, because pyarrow and pyspark take long to load

    with opened(context, service_url, create=True) as cluster:
        made = cluster.topics.create(name, segments=segments, key=key, schema=schema)
    if isinstance(made, PersistentDescription):
        say(f"Created {made.name}.")
        return
    say(f"Created {made.name} with {len(made.segments)} segment{'' if len(made.segments) == 1 else 's'}.")


@app.command("list")
def list_topics(
    context: typer.Context,
    pattern: Annotated[str | None, typer.Option(metavar="REGEX", help="Matches the full name from end to end.")] = None,
    namespace: Namespace = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """List the topics."""
    with opened(context, service_url) as cluster:
        found = cluster.topics.list(pattern, **within(cluster, namespace))
        where = place(cluster, namespace)
    if json:
        show_json(found)
        return
    rows = [(t.name, _active(t), t.key, _columns(t)) for t in found]
    show_table(("TOPIC", "ACTIVE SEGMENTS", "KEY", "COLUMNS"), rows, empty=f"There are no topics{where}.")


@app.command()
def describe(
    context: typer.Context,
    name: Name,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the segments into this file.")] = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Show a topic: its key, schema, and segments with their parents and children."""
    from txnsegment import lineage  # imported late, because pyarrow and pyspark take long to load
    from txnsegment.topics import PersistentDescription  # imported late for the same reason

    with opened(context, service_url) as cluster:
        topic = cluster.topics.describe(name)
    if svg is not None and isinstance(topic, PersistentDescription):
        raise OptionError(f"{topic.name} has no segments to draw.", advice="Leave --svg out.")
    if svg is not None:
        svg.write_text(lineage.svg(topic))
    if json:
        show_json(topic)
        return
    if isinstance(topic, PersistentDescription):
        facts = [("topic", topic.name), ("created", moment(topic.created_ms)), ("columns", _columns(topic))]
        facts += [("sealed", "takes no more rows" if topic.sealed else None), ("migrated to", topic.migrated_to)]
        show_facts([*facts, *(("property", f"{key}={value}") for key, value in sorted(topic.properties.items()))])
        return
    show_facts([("topic", topic.name), ("key", topic.key or "none"), ("epoch", topic.epoch), ("columns", _columns(topic))])
    say()
    rows = [
        (s.id, s.name, s.state, f"{s.start:04x}-{s.end:04x}", moment(s.created_ms), moment(s.sealed_ms)) for s in topic.segments
    ]
    show_table(("ID", "SEGMENT", "STATE", "RANGE", "CREATED", "SEALED"), rows, empty="It has no segments.")
    if any(s.parents for s in topic.segments):
        say()
        console().print(lineage.tree(topic))


@app.command()
def split(
    context: typer.Context,
    name: Name,
    segment: Annotated[int, typer.Option(metavar="ID", help="The id of an active segment.")],
    service_url: ServiceUrl = None,
) -> None:
    """Split a segment into two children with half of its hash range each. Writers and readers continue."""
    with opened(context, service_url) as cluster:
        _show_children(cluster.topics.split(name, segment), [segment])


@app.command()
def merge(
    context: typer.Context,
    name: Name,
    segments: Annotated[str, typer.Option(metavar="A,B", help="The ids of two active neighbours.")],
    service_url: ServiceUrl = None,
) -> None:
    """Merge two neighbouring segments into one child. Writers and readers continue."""
    found = [text.strip() for text in segments.split(",")]
    if len(found) != 2 or not all(text.isdecimal() for text in found):
        raise OptionError(f"--segments {segments!r} is not a pair of ids.", advice="Write, for example, --segments 3,4.")
    first, second = map(int, found)
    with opened(context, service_url) as cluster:
        _show_children(cluster.topics.merge(name, first, second), [first, second])


def _show_children(topic: TopicDescription, parents: list[int]) -> None:
    names = {s.id: s.name for s in topic.segments}
    children = next(s.children for s in topic.segments if s.id == parents[0])
    sealed, made = (", ".join(names[i] for i in ids if i in names) for ids in (parents, children))
    say(f"Sealed {sealed}; active instead: {made}.")


@app.command()
def migrate(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="PERSISTENT", help="persistent://tenant/namespace/name.")],
    to: Annotated[str, typer.Option(metavar="TOPIC", help="The new topic://; its name must be free.")],
    segments: Annotated[int, typer.Option(help="The number of active segments of the new topic.")] = 1,
    wait: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long to wait until open transactions end.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Abort open transactions.")] = False,
    service_url: ServiceUrl = None,
) -> None:
    """Turn a persistent:// topic into a topic://, without copying rows. Writers and readers continue."""
    with opened(context, service_url) as cluster, working(f"Migrating {name}"):
        made = cluster.topics.migrate(name, to, segments=segments, wait=wait, force=force)
    active = [s.name for s in made.segments if s.sealed_ms is None]
    say(f"Migrated {name} to {made.name}: the old log is sealed; new rows go to {', '.join(active)}.")


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    service_url: ServiceUrl = None,
) -> None:
    """Delete a topic and its rows, after a question. This cannot be undone."""
    with opened(context, service_url) as cluster:
        full = cluster.topics.describe(name).name
        confirm(f"Delete {full} and all of its rows? This cannot be undone.", yes=yes)
        cluster.topics.delete(name)
        files = "" if is_pulsar(cluster.url) else " An orphan sweep deletes its files after the grace period."
    say(f"Deleted {name}.{files}")


@app.command()
def properties(
    context: typer.Context,
    name: Persistent,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="KEY", help="Remove a property.")] = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Show or change the properties of a persistent:// topic; __contains_txn_messages is the system's and read-only."""
    with opened(context, service_url) as cluster:
        for pair in set_ or ():
            key, equals, value = pair.partition("=")
            if not equals:
                raise OptionError(f"--set {pair!r} is not key=value.", advice="Write it like --set owner=me.")
            cluster.topics.set_property(name, key.strip(), value)
        for key in remove or ():
            cluster.topics.remove_property(name, key)
        found = cluster.topics.properties(name)
    if json:
        show_json(found)
    else:
        show_table(("PROPERTY", "VALUE"), sorted(found.items()), empty="It has no properties.")


@app.command()
def model(
    context: typer.Context,
    namespace: Annotated[str, typer.Argument(metavar="NAMESPACE", help="namespace://tenant/namespace.")],
    new_persistent: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model of new persistent:// topics: in-stream or metadata.")
    ] = None,
    service_url: ServiceUrl = None,
) -> None:
    """Show or set the model of a namespace's new persistent:// topics: in-stream (marker-based), or metadata (topic://)."""
    with opened(context, service_url) as cluster:
        found = cluster.topics.model(namespace) if new_persistent is None else cluster.topics.set_model(namespace, new_persistent)
    say(f"{namespace}: new persistent:// topics are {'persistent://' if found == 'in-stream' else 'topic://'} ({found}).")


app.command()(rows.read)
app.command()(rows.write)


@app.command()
def retention(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A topic, or namespace://tenant/namespace for all of its topics.")],
    keep: Annotated[str | None, typer.Option(metavar="168h", help="How long rows are kept; 'forever': no limit.")] = None,
    keep_bytes: Annotated[int | None, typer.Option(help="How many bytes are kept; -1: no limit.")] = None,
    despite_subscriptions: Annotated[
        bool | None,
        typer.Option(
            "--despite-subscriptions/--with-subscriptions", help="Whether rows that a subscription needs are trimmed, too."
        ),
    ] = None,
    compact_files: Annotated[
        int | None, typer.Option(help="Sweepers compact from this many small files in a row; -1: never.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the policy of this name.")] = False,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Show or set a retention policy. A topic without a policy of its own has its namespace's; without any, all rows are kept."""
    from txnsegment.retention import FIELDS  # imported late, because pyarrow and pyspark take long to load

    given = (keep, keep_bytes, despite_subscriptions, compact_files)
    with opened(context, service_url) as cluster:
        if clear:
            found = cluster.retention.clear(name)
        elif any(value is not None for value in given):
            longest = None if keep is None else timedelta.max if keep == "forever" else timedelta(seconds=duration("--keep", keep))
            found = cluster.retention.set(
                name,
                keep=longest,
                keep_bytes=keep_bytes,
                despite_subscriptions=despite_subscriptions,
                compact_files=compact_files,
            )
        else:
            found = cluster.retention.get(name)
    kept = found.model_dump(by_alias=True, include=set(FIELDS))
    if json:
        show_json(kept)
        return
    said = {key: value for key, value in kept.items() if value is not None}
    say(f"{name}: {', '.join(f'{key}={value}' for key, value in said.items()) or 'all rows are kept'}.")


@app.command()
def scaling(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A topic, or namespace://tenant/namespace for all of its topics.")],
    rows_per_second: Annotated[int | None, typer.Option(help="Split a segment that gets more; -1: no limit.")] = None,
    bytes_per_second: Annotated[int | None, typer.Option(help="Split a segment that gets more; -1: no limit.")] = None,
    min_segments: Annotated[int | None, typer.Option(help="Active segments at least. Merge down to it; without it never.")] = None,
    max_segments: Annotated[int | None, typer.Option(help="Active segments at most (64).")] = None,
    cool_down: Annotated[
        str | None,
        typer.Option(metavar="60s", help="The time that rates are averaged over; no new segment is split or merged in it (60s)."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the policy of this name.")] = False,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Show or set the policy by which segments split and merge automatically. Without a policy they never do."""
    given = (rows_per_second, bytes_per_second, min_segments, max_segments, cool_down)
    with opened(context, service_url) as cluster:
        if clear:
            cluster.scaling.clear(name)
        elif any(value is not None for value in given):
            cluster.scaling.set(
                name,
                rows_per_second=rows_per_second,
                bytes_per_second=bytes_per_second,
                min_segments=min_segments,
                max_segments=max_segments,
                cool_down=None if cool_down is None else timedelta(seconds=duration("--cool-down", cool_down)),
            )
        found = cluster.scaling.get(name)
    if json:
        show_json(found)
    elif found is None:
        say(f"{name}: no scaling policy; segments split and merge by command only.")
    else:
        limits = [f"{limit} {what} a second" for limit, what in ((found.rows, "rows"), (found.bytes, "bytes")) if limit is not None]
        say(
            f"{name}: a segment splits above {' or '.join(limits)} over {found.cool_down_ms / 1000:g} s, "
            f"{'never merges, at most' if found.fewest is None else f'{found.fewest} to'} {found.most} segments."
        )


def _active(topic: TopicDescription) -> int | None:
    from txnsegment.topics import PersistentDescription  # imported late, because pyarrow and pyspark take long to load

    return None if isinstance(topic, PersistentDescription) else sum(s.sealed_ms is None for s in topic.segments)


def _columns(topic: TopicDescription) -> str:
    if topic.schema is None:
        return "none yet"
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in topic.schema)
