"""Commands about the schemas of topics.

d1: register-schema a id:int name:string/x note:string?     register an Avro schema. `/x`: the field has the default x. `?`: the
                                     field is nullable
d1: compatibility a full             set the compatibility mode of the topic
d1: grow a id:long more:string       extend the topic's schema, as for a write of rows with these columns
schemas a                            show the versions of the topic's schema, oldest first; then its other schema records
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import types as T

from conformance.scripts.names import layouts, records
from conformance.scripts.parsing import Command, ScriptError
from conformance.scripts.world import Work, World
from ledgers.avro.modes import Compatibility
from metadata.records import paths
from metadata.records.names import topic_name

_FIELD = re.compile(r"([a-z]+):([a-z]+)(\?)?(?:/(\w+))?")
_COLUMNS = {"int": T.IntegerType(), "long": T.LongType(), "string": T.StringType(), "double": T.DoubleType()}


def _fields(cmd: Command) -> list[tuple[str, str, bool, str | None]]:
    found = []
    for word in cmd.words[1:]:
        match = _FIELD.fullmatch(word)
        if match is None:
            raise ScriptError(f"{cmd.line!r}: {word} is not name:type, with ? or /default")
        found.append((match[1], match[2], bool(match[3]), match[4]))
    return found


def _avro(cmd: Command) -> str:
    fields: list[dict[str, Any]] = []
    for name, kind, optional, default in _fields(cmd):
        made: dict[str, Any] = {"name": name, "type": ["null", kind] if optional else kind}
        if optional:
            made["default"] = None
        elif default is not None:
            made["default"] = default if kind == "string" else int(default)
        fields.append(made)
    return json.dumps({"type": "record", "name": "row", "fields": fields})


def register_schema(world: World, cmd: Command) -> list[str]:
    process, name, text = world.process(cmd.who("admin")), topic_name(cmd.words[0]), _avro(cmd)
    schemas = process.client.topics.schemas
    return world.drive(Work(process, lambda: schemas.register(name, text), lambda found: [f"version {found.version}"]))


def set_compatibility(world: World, cmd: Command) -> list[str]:
    process, name, mode = world.process(cmd.who("admin")), topic_name(cmd.words[0]), Compatibility(cmd.words[1])
    schemas = process.client.topics.schemas
    return world.drive(Work(process, lambda: schemas.set_compatibility(name, mode), lambda _: []))


def grow(world: World, cmd: Command) -> list[str]:
    process, name = world.process(cmd.who("d1")), topic_name(cmd.words[0])
    columns = T.StructType([T.StructField(column, _COLUMNS[kind]) for column, kind, _, _ in _fields(cmd)])
    topics = process.client.topics
    return world.drive(Work(process, lambda: topics.evolve(name, columns), lambda found: [f"version {found[1]}"]))


def show_schemas(world: World, cmd: Command) -> list[str]:
    short = cmd.one()
    name = topic_name(short)
    bodies = {int(key.path[-20:]): body for key, body in records(world.state, f"/schemas/{paths.encode(str(name))}/")}
    counts, version = [], layouts(world.state)[short].get("schemaId")
    while version is not None:
        counts.append(version)
        version = bodies[version].get("follows")
    lines = [f"version {n}: {_shown(bodies[n])}" for n in reversed(counts)]
    return lines + [f"{n} is nobody's: {_shown(body)}" for n, body in bodies.items() if n not in counts] or ["none"]


def _shown(body: Any) -> str:
    columns = ", ".join(f"{f['name']} {f['type']}" for f in json.loads(body["spark"])["fields"])
    if "avro" not in body:
        return columns
    fields = json.loads(body["avro"])["fields"]
    return f"{columns}; Avro {', '.join(_field(field) for field in fields)}"


def _field(field: Any) -> str:
    kind = "|".join(field["type"]) if isinstance(field["type"], list) else field["type"]
    return f"{field['name']} {kind}" + (f" = {json.dumps(field['default'])}" if "default" in field else "")


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    "register-schema": register_schema,
    "compatibility": set_compatibility,
    "grow": grow,
    "schemas": show_schemas,
}
