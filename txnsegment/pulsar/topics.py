"""The topics of a Pulsar cluster."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metadata.common.errors import OptionError
from metadata.records.names import topic_name
from metadata.records.records import SegmentState
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import OlderModel, TopicDamaged, TopicMissing
from pulsar_protocol.rest import NOT_EMPTY, Refused, path_of
from pulsar_protocol.retries import repeat
from pulsar_protocol.values import codec
from spark_txn_sink.pulsar.admin import check_namespace
from txnsegment.pulsar import rows
from txnsegment.pulsar.refused import refusal, rest
from txnsegment.reading import Place, options_of
from txnsegment.topics import SegmentDescription, TopicDescription

log = logging.getLogger("txnsegment.topics.pulsar")

DELETE_SECONDS: Final = 30.0
GONE: Final = 404
_WHY = {
    "schema": "describe(name).schema (txnsegment topics describe TOPIC) has its columns; pulsar-admin schemas get has its text.",
    "schemas": "pulsar-admin schemas get shows the versions of a schema.",
    "set_schema": "The first write registers the schema of its columns; pulsar-admin schemas upload sets another one.",
    "compatibility": "It is a policy of the namespace: pulsar-admin namespaces get-schema-compatibility-strategy.",
    "set_compatibility": "It is a policy of the namespace: pulsar-admin namespaces set-schema-compatibility-strategy.",
    "migrate": "POST /admin/v2/scalable/tenant/namespace/name/migrate of Pulsar's REST interface.",
    "properties": "They are in the answer of GET /admin/v2/scalable/tenant/namespace/name of Pulsar's REST interface.",
    "set_property": "Give them when the topic is created, with Pulsar's REST interface.",
    "remove_property": "Give them when the topic is created, with Pulsar's REST interface.",
    "model": "A Pulsar cluster keeps topic:// and persistent:// topics beside each other.",
    "set_model": "A Pulsar cluster keeps topic:// and persistent:// topics beside each other.",
}
"""The calls of `cluster.topics` that a Pulsar cluster does not have, each with what to do in its place."""


class PulsarTopics:
    """The scalable topics of a Pulsar cluster. A bare `name` means `topic://public/default/name`. To create, split, merge and
    delete topics, Pulsar's REST interface is needed, whose URL is in the variable TXNSEGMENT_PULSAR_ADMIN_URL.
    """

    metadata_columns = rows.METADATA_NAMES
    """The columns that `read` and `follow` add with `metadata=True`."""

    def __init__(self, client: PulsarClient) -> None:
        self._client = client

    def list(self, pattern: str | None = None, *, namespace: str = "public/default") -> list[TopicDescription]:
        """Return the scalable topics of a namespace, sorted by name, without the topics whose name begins with `__`. `pattern`: a
        regular expression that the full name must match from end to end. Logs a warning for each topic that is damaged. Raises
        OptionError for a bad pattern.
        """
        try:
            wanted = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise OptionError(f"The pattern {pattern!r} is no regular expression: {error}.", advice="Correct it.") from error
        names = sound_topics(self._client, namespace)
        return [self.describe(name) for name in names if wanted is None or wanted.fullmatch(name)]

    def describe(self, name: str) -> TopicDescription:
        """Return the schema and the segments of a topic. Raises TopicMissing."""
        full = str(topic_name(name))
        layout = self._client.layout(full)
        return TopicDescription(
            name=full,
            key=None,
            schema=_columns(self._client.schema(full), full),
            epoch=layout.epoch,
            segments=tuple(
                SegmentDescription(
                    name=one.name,
                    id=one.id,
                    start=one.start,
                    end=one.end,
                    state=SegmentState.ACTIVE if one.active else SegmentState.SEALED,
                    parents=one.parents,
                    children=one.children,
                    created_ms=one.created_ms,
                    sealed_ms=one.sealed_ms,
                )
                for one in layout.segments.values()
            ),
        )

    def columns_now(self, name: str) -> StructType | None:
        """Return the columns of a topic; None if it does not exist, or has no schema yet. Raises OlderModel."""
        try:
            return self.describe(name).schema
        except OlderModel:
            raise
        except TopicMissing:
            return None

    def read(
        self,
        name: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        start: Place = "earliest",
        end: Place = "latest",
        metadata: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the committed rows of a topic as a stream of Arrow batches, as `ClusterTopics.read` does. Rows of a segment are in
        order, and come after those of its parents. `start`, `end`: `earliest`, `latest`, a datetime with a time zone, or the JSON
        text of an offset. Raises TopicMissing, OptionError, SchemaError, DataLoss.
        """
        return rows.read(self._options(name, columns, start, end, metadata=metadata))

    def follow(
        self,
        name: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        start: Place = "latest",
        metadata: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the committed rows of a topic after `start`, and wait for more without end, as `ClusterTopics.follow` does. The
        broker is asked ten times a second. Retention may remove rows before they are read; this is DataLoss.
        """
        return rows.follow(self._options(name, columns, start, "latest", metadata=metadata))

    def _options(
        self, name: str | Sequence[str], columns: Sequence[str] | None, start: Place, end: Place, *, metadata: bool
    ) -> dict[str, str]:
        names = rows.full_name(name) if isinstance(name, str) else [rows.full_name(one) for one in name]
        return options_of(self._client.url, names, columns, start, end, metadata=metadata)

    def create(self, name: str, *, segments: int = 1, key: str | None = None, schema: object = None) -> TopicDescription:
        """Create a topic. Raises OptionError if `key` or `schema` is given, or if the URL of the REST interface is not set. Raises
        OlderModel if a `persistent://` topic has the name: readers of the bare name would no longer find it. Raises TopicDamaged,
        Refused if the topic exists or its namespace does not, or another error of the REST interface.
        """
        if key is not None or schema is not None:
            raise OptionError(
                "A topic of a Pulsar cluster is created without a key column and a schema.",
                advice="Leave them out. The first write, with or without Spark, registers the schema of its columns. Each write "
                "names its key: the option keyColumn of Spark, the argument key of append and producer.",
            )
        full = str(topic_name(name))
        check_namespace(rest("The creation of a topic"), full)
        try:
            self._client.layout(full)
        except TopicMissing as error:
            if isinstance(error, OlderModel):
                raise
        return self._changed(name, "PUT", f"?numInitialSegments={segments}")

    def split(self, name: str, segment: int) -> TopicDescription:
        """Split an active segment, given by its id. Raises OptionError, or an error of the REST interface."""
        self._check_active(name, segment)
        return self._changed(name, "POST", f"/split/{segment}")

    def merge(self, name: str, a: int, b: int) -> TopicDescription:
        """Merge two active neighbouring segments, given by their ids. Raises OptionError, or an error of the REST interface."""
        self._check_active(name, a, b)
        return self._changed(name, "POST", f"/merge/{a}/{b}")

    def delete(self, name: str) -> None:
        """Delete a topic and its rows. This cannot be undone. Raises TopicMissing, OptionError, or an error of the REST
        interface. A broker that still writes records of the topic is asked again, for at most `DELETE_SECONDS`.
        """
        full = str(topic_name(name))
        self._client.layout(full)
        try:
            delete_topic(self._client, full)
        except TopicDamaged as error:
            log.warning("The rows of %s are deleted, but its name is not free: %s %s", full, error.message, error.advice)

    def _check_active(self, name: str, *segments: int) -> None:
        """Raise OptionError unless all ids are those of active segments."""
        layout = self._client.layout(str(topic_name(name)))
        active = [one.id for one in layout.active]
        if missing := [str(one) for one in segments if one not in active]:
            raise OptionError(
                f"{layout.topic} has no active segment {', '.join(missing)}.",
                advice=f"The ids of its active segments are {', '.join(map(str, active))}: the last number of a segment's name.",
            )

    def _changed(self, name: str, method: str, more: str) -> TopicDescription:
        full = str(topic_name(name))
        rest("A change of a topic").ask(method, path_of(full) + more)
        return self.describe(full)

    def __getattr__(self, name: str) -> NoReturn:
        raise refusal(self, "cluster.topics", _WHY, name)


def delete_topic(client: PulsarClient, topic: str, *, force: bool = False) -> None:
    """Delete a scalable topic. A broker that still writes records of the topic is asked again, for at most `DELETE_SECONDS`.
    `force`: also if the topic has producers or consumers. Raises TopicDamaged if the broker has deleted the topic and left a part
    of it behind, or an error of the REST interface.
    """
    interface = rest("The deletion of a topic")

    def deleted(_: float) -> None:
        try:
            interface.ask("DELETE", path_of(topic) + ("?force=true" if force else ""))
        except Refused as error:
            if error.status != GONE:  # the topic was there, so an earlier request or another program has deleted it
                raise

    repeat(deleted, DELETE_SECONDS, stop=threading.Event(), when=lambda error: NOT_EMPTY in error.message)
    if damaged := damaged_topics(client, [topic]):
        raise damaged[topic]


def sound_topics(client: PulsarClient, namespace: str) -> list[str]:
    """Return the full names of the scalable topics of a namespace, sorted, without the topics whose name begins with `__`. Damaged
    topics are left out, and logged.
    """
    names = sorted(client.topics(namespace))
    damaged = damaged_topics(client, names)
    for error in damaged.values():
        log.warning("%s %s", error.message, error.advice)
    return [name for name in names if name not in damaged and not topic_name(name).name.startswith("__")]


def damaged_topics(client: PulsarClient, names: Iterable[str]) -> dict[str, TopicDamaged]:
    """Return those of the topics that are damaged, each with its error. A topic that was deleted meanwhile is not damaged."""
    found = {}
    for name in names:
        try:
            client.layout(name)
        except TopicDamaged as error:
            found[name] = error
        except TopicMissing:
            continue
    return found


def _columns(schema: Any | None, topic: str) -> StructType | None:
    """Return the columns of a topic's rows, or None if the topic has no schema."""
    if schema is None:
        return None
    found: StructType = from_arrow_schema(codec(schema, topic).columns)
    return found
