"""Checks that the schema of a planned read still fits the current schemas of its topics."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ledgers import schema as schemas
from metadata.client.client import Client
from metadata.common.errors import SchemaChanged, SchemaError
from metadata.topics.topic import Topic
from spark_txn_source.columns import Columns, full_schema


def check_schema(client: Client, topics: Sequence[Topic], columns: Columns, *, streaming: bool, ignore_new: bool) -> None:
    """Raise an error if the rows no longer fit the schema of the read. The rows do not fit if a column has a wider type now, or
    does not exist any more. Without `ignore_new` they also do not fit a stream of all columns if there is a new column, nor a
    stream of Avro values if there is a new schema version.

    Raises SchemaChanged for a stream, which gets the new schema by a restart. Raises SchemaError for a batch, whose DataFrame must
    be loaded again.
    """
    if streaming and not ignore_new and columns.version is not None:
        _check_version(client, topics, columns.version)
    now = full_schema(client, topics)
    if now is None or now == columns.full:
        return
    changed = _no_more_fitting(now, columns.wanted)
    known = _paths(columns.full)
    if streaming and not ignore_new and columns.avro is None and _paths(columns.wanted).keys() == known.keys():
        changed += [f"new column {path} {kind}" for path, kind in _paths(now).items() if path not in known]
    if not changed:
        return
    named = ", ".join(str(t.name) for t in topics)
    what = f"The topics {named} have changed since this read was planned: {'; '.join(changed)}."
    if streaming:
        raise SchemaChanged(
            what,
            advice="Restart the query to pick it up; no row was dropped. schemaChange=ignoreNewColumns leaves new columns out.",
        )
    raise SchemaError(what, advice="Load the DataFrame again.")


def _check_version(client: Client, topics: Sequence[Topic], version: int) -> None:
    """Raise SchemaChanged if the current schema version of a topic is not the version by which a stream encodes values."""
    for topic in topics:
        latest = client.topics.schemas.latest(topic)
        if latest is not None and latest.version != version:
            raise SchemaChanged(
                f"The schema of {topic.name} is version {latest.version} now; this stream gives values by version {version}.",
                advice="Restart the query to use the new version; no row was dropped. schemaVersion keeps a stream at a version, "
                "schemaChange=ignoreNewColumns at the version of its start.",
            )


def check_replay(client: Client, topics: Sequence[Topic], columns: Columns) -> None:
    """Raise SchemaChanged if a replayed batch, which was planned for other topics (`topicsChanged=continue`), has columns that do
    not fit the current read. A column that only the read has is filled with null. A column that only the batch has is left out.
    """
    then = full_schema(client, topics)
    if then is None:
        return
    there = set(then.fieldNames())
    shared = StructType([f for f in columns.wanted if f.name in there])
    changed = []
    for field in shared:
        wanted, found = StructType([field]), StructType([then[field.name]])
        try:  # a field of a struct may also be missing on either side
            schemas.project(schemas.union([schemas.nullable(wanted), found], ["this read", "the batch"]), wanted)
        except SchemaError:
            changed.append(
                f"{field.name} is {then[field.name].dataType.simpleString()} there, {field.dataType.simpleString()} here"
            )
    if changed:
        raise SchemaChanged(
            f"The last batch was planned for {', '.join(str(t.name) for t in topics)} and has to be read again, but its "
            f"columns do not fit this read: {'; '.join(changed)}.",
            advice="Restart once with the former topics, or read columns that fit; no row was dropped.",
        )


def _no_more_fitting(now: StructType, wanted: StructType) -> list[str]:
    """Return descriptions of the columns of the read that no longer exist or whose type no longer fits."""
    found = []
    for field in wanted:
        if field.name not in now.fieldNames():
            found.append(f"there is no column {field.name}")
            continue
        try:
            schemas.project(StructType([now[field.name]]), StructType([field]))
        except SchemaError:
            found.append(f"{field.name} is {now[field.name].dataType.simpleString()}, was {field.dataType.simpleString()}")
    return found


def _paths(kind: DataType, above: str = "") -> dict[str, str]:
    """Return the type of each column of a schema and of each field of its structs, by path."""
    match kind:
        case StructType():
            found = {}
            for field in kind:
                path = f"{above}{field.name}"
                found[path] = field.dataType.simpleString()
                found.update(_paths(field.dataType, f"{path}."))
            return found
        case ArrayType():
            return _paths(kind.elementType, f"{above}element.")
        case MapType():
            return _paths(kind.keyType, f"{above}key.") | _paths(kind.valueType, f"{above}value.")
    return {}
