"""Rows as Avro binary for `Consumer` and `Producer`, and the schema version by which they are encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ledgers.avro.rows import VALUE, Codec
from metadata.client.client import Client
from metadata.common.errors import OptionError, SchemaError
from metadata.common.options import one_of
from metadata.read.reading import Reading
from metadata.records.names import TopicName, any_topic_name, segment_name
from spark_txn_source.entries import EntryRows


@dataclass(frozen=True)
class Values:
    """How a consumer delivers the rows of one topic as Avro bytes (`value_format="avro"`). `version`: the schema version by which
    the rows are encoded; None: the latest version at each reading.
    """

    version: int | None

    def codec(self, client: Client, reading: Reading) -> Codec | None:
        """Return the codec of this reading; None if the topic has no schema yet. A consumer uses a new latest version from its next
        reading on.
        """
        (topic,) = reading.topics
        schemas = client.topics.schemas
        found = schemas.latest(topic) if self.version is None else schemas.version(topic, self.version)
        return None if found is None else Codec(found.avro)


def values_of(topics: Sequence[str], columns: Sequence[str] | None, value_format: str, version: int | None) -> Values | None:
    """Return the value format of a consumer; None if rows are delivered as columns. Raises OptionError for arguments that exclude
    each other.
    """
    if not _is_avro(value_format, version):
        return None
    if len({segment_name(n).topic if n.startswith("segment:") else any_topic_name(n) for n in topics}) != 1:
        raise OptionError("value_format='avro' reads one topic, by its schema.", advice="Make a consumer for each topic.")
    if columns is not None:
        raise OptionError("value_format='avro' and columns are both given: a value is a whole record.", advice="Leave one out.")
    return Values(version)


def as_values(codec: Codec, rows: EntryRows) -> pa.RecordBatch:
    """Return the rows as one column of Avro bytes. Raises ValueFormatError, which names the row."""

    def named(index: int) -> str:
        return f"The row {rows.ledger}:{rows.entry}:{rows.first_row + index} of {rows.segment}"

    return pa.RecordBatch.from_arrays([codec.encode(rows.batch, named)], [VALUE])


@dataclass(frozen=True)
class WrittenValues:
    """How a producer decodes rows that a program sends as Avro bytes. The codec is that of the schema version that the program
    chose, or of the version that was the latest when the producer was made.
    """

    topic: TopicName
    codec: Codec

    def rows(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Return the values as columns. Raises ValueFormatError."""
        return self._decoded(pa.array(values, pa.binary()), 0)

    def batches(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batches whose one column is `value`. Yield each with the topic's columns. Raises SchemaError, ValueFormatError."""
        seen = 0
        for batch in found:
            if batch.schema.names != [VALUE] or not pa.types.is_binary(batch.schema.field(0).type):
                raise SchemaError(
                    f'With value_format="avro" a batch has the one column value (binary), not {batch.schema}.',
                    advice="Give such batches, or leave value_format out.",
                )
            yield self._decoded(batch.column(0), seen)
            seen += batch.num_rows

    def _decoded(self, values: pa.Array, seen: int) -> pa.RecordBatch:
        return self.codec.decode(values, lambda row: f"The value {seen + row} (from 0) in a write to {self.topic}")


def written_values(client: Client, name: str, value_format: str, version: int | None) -> WrittenValues | None:
    """Return the value format of a producer; None if rows are given as columns. Raises OptionError, TopicNotFound, SchemaError."""
    if not _is_avro(value_format, version):
        return None
    topic, schemas = client.topics.get(any_topic_name(name)), client.topics.schemas
    found = schemas.latest(topic) if version is None else schemas.version(topic, version)
    if found is None:
        raise SchemaError(f"The topic {topic.name} has no schema yet.", advice="Register one: cluster.topics.set_schema.")
    return WrittenValues(topic.name, Codec(found.avro))


def _is_avro(value_format: str, version: int | None) -> bool:
    avro = one_of("columns", "avro")("value_format", value_format) == "avro"
    if version is not None and not avro:
        raise OptionError("schema_version is given without value_format='avro'.", advice="Give both, or neither.")
    return avro
