"""Registers the first schema of a topic.

Entries name the version of the schema that they were written with, and versions count from 0. The broker 5.0.0-M1 deletes the
schema of a topic together with a sealed segment of the topic, so entries of the other segments may name versions that are gone. The
next schema that is registered becomes version 0 again. Readers would then decode the old entries with the new schema. So a topic
gets a first schema only if none of its entries names a version.
"""

from __future__ import annotations

from typing import Final

from ledgers.errors import SchemaError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Segment
from pulsar_protocol.messages import Schema
from pulsar_protocol.reader import entries

KEEP_SCHEMAS: Final = (
    "The broker 5.0.0-M1 deletes the schema of a topic when it deletes a sealed segment of it. So set unlimited retention on the "
    "namespace, or disable isAllowAutoUpdateSchema, or split and merge no segment (docs/pulsar.md)."
)
"""What keeps the broker from deleting the schemas of topics."""


def register_first(client: PulsarClient, topic: str, segment: str, schema: Schema) -> None:
    """Register a schema in a topic that had none a moment ago. `segment`: an active segment of the topic. Raises SchemaError if an
    entry of the topic may name a version of a schema that is gone. Raises SchemaRefused if another writer has registered a schema
    meanwhile, and this one is not compatible.
    """
    found = _doubt(client, topic)
    if found is not None and client.schema(topic) is None:  # otherwise another writer has registered a schema, and sent rows
        raise found
    client.register(segment, schema)


def _doubt(client: PulsarClient, topic: str) -> SchemaError | None:
    """Read all entries of the topic. Return an error if one of them names a version of a schema, or if the newest ones cannot be
    read, because their transaction is open or aborted. Return None if no entry names a version.
    """
    for one in client.layout(topic).segments.values():
        cut = Segment(client, one.name).cut(sealed=not one.active)
        for position, entry in entries(client, one.name, to=cut.position):
            if version := bytes(entry.metadata.schema_version):
                return SchemaError(
                    f"The entry {position.text} of {one.name} was written with the schema version {int.from_bytes(version, 'big')} "
                    f"of {topic}, which has no schema any more. The columns of a write become no schema of this topic, because "
                    "they would get the version of the rows that are there.",
                    advice="Register the schema that these rows were written with (pulsar-admin schemas upload), or write to "
                    f"another topic. The option valueFormat=binary reads the bytes of the rows. {KEEP_SCHEMAS}",
                )
        if not cut.whole:
            return SchemaError(
                f"{topic} has no schema, and the newest rows of {one.name} are of an open or aborted transaction. It is unknown "
                "whether they were written with a schema that is gone, so the columns of a write become no schema of this topic.",
                advice="Write again when the transaction is committed. If it was aborted, register the schema by pulsar-admin "
                f"schemas upload: the one that the topic had, if it had one. {KEEP_SCHEMAS}",
            )
    return None
