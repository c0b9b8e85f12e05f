"""The declarations of the options of a read from Pulsar. The options have the same names as those of a read from a txnsegment
cluster. An option that has no meaning for Pulsar topics is refused, and the error gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from metadata.common.options import Option, OptionTable, bad, offset_json, one_of, without, words
from metadata.common.service import PULSAR_URL, ServiceUrl, parse_service_url
from pulsar_protocol.layout import Position
from spark_txn_source import option_table as others
from spark_txn_source.pulsar.selection import pattern

ValueFormat = Literal["columns", "binary"]
_OFFSET_FORM: Final = (
    '{"segments": {"segment://tenant/namespace/name/0000-ffff-0": "ledger:entry"}}, as a query\'s progress shows it. A '
    "segment that is not named is read from its beginning."
)

_TRIGGER: Final = "Leave it out, and give the query a trigger with an interval (processingTime)."


@dataclass(frozen=True)
class At:
    """A place in a topic. For each segment it has the position of the last entry before this place."""

    segments: Mapping[str, Position]


Place = Literal["earliest", "latest"] | At


def _advice(name: str) -> str:
    """Return what to write for the start or the end of a read."""
    return f"Write {'latest' if name == 'endingOffsets' else 'earliest, latest'}, or {_OFFSET_FORM}"


def _place(name: str, text: str) -> Place:
    match text.strip().lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
    try:
        found = offset_json(text)
    except ValueError as error:
        raise bad(name, text, f"it is neither a known word nor JSON ({error})", _advice(name)) from error
    if not isinstance(found, dict):
        raise bad(name, text, "it is not a JSON object with the field segments", _advice(name))
    if "topics" in found:
        return _several(name, text, found)
    return At(_segments(name, text, found))


def _several(name: str, text: str, found: dict[str, Any]) -> At:
    """Read the offset of a stream from several topics, which is a JSON object with the field `topics`. Return one place with the
    segments of all these topics.
    """
    topics = found["topics"]
    if not isinstance(topics, dict) or not all(isinstance(one, dict) for one in topics.values()):
        raise bad(name, text, "the field topics is not a JSON object with an offset of each topic", _advice(name))
    if more := sorted(found.keys() - {"topics", "pattern"}):
        raise bad(name, text, f"it has unknown fields ({', '.join(more)})", _advice(name))
    return At({segment: place for one in topics.values() for segment, place in _segments(name, text, one).items()})


def _segments(name: str, text: str, found: dict[str, Any]) -> dict[str, Position]:
    segments = found.get("segments")
    if not isinstance(segments, dict):
        raise bad(name, text, "it is not a JSON object with the field segments", _advice(name))
    if more := sorted(found.keys() - {"topic", "epoch", "segments", "ended", "initial", "began", "sent", "subscription"}):
        raise bad(name, text, f"it has unknown fields ({', '.join(more)})", _advice(name))
    try:
        return {segment: Position.parse(place) for segment, place in segments.items()}
    except (TypeError, ValueError) as error:
        raise bad(name, text, str(error), _advice(name)) from error


def _end(name: str, text: str) -> Place:
    found = _place(name, text)
    if found == "earliest":
        raise bad(name, text, "a read cannot end at its start", "Write latest, or positions of segments as JSON.")
    return found


def _without(option: Option[Any], why: str, advice: str = "Leave it out.") -> Option[Any]:
    return without(option, "a Pulsar cluster", why, advice)


STARTING_OFFSETS: Final[Option[Place]] = Option(
    "startingOffsets",
    '`earliest`, `latest`, `{"segments":{"segment://..":"ledger:entry"}}`',
    "Reads rows after this place. A stream uses it with a new checkpoint only.",
    _place,
    default_note="batch `earliest`, stream `latest`",
)
ENDING_OFFSETS: Final[Option[Place]] = Option(
    "endingOffsets",
    '`latest`, `{"segments":{"segment://..":"ledger:entry"}}`',
    others.ENDING_OFFSETS.meaning,
    _end,
    default="latest",
    only="batch",
    why=others.ENDING_OFFSETS.why,
)
TOPICS_PATTERN: Final = Option(
    "topicsPattern",
    "`topic://tenant/namespace/` and a regular expression (Python)",
    "All scalable topics of this namespace whose full name matches the expression from end to end, and does not begin with `__`. A "
    "stream reads new ones from their beginning.",
    pattern,
)
VALUE_FORMAT: Final[Option[ValueFormat]] = Option(
    "valueFormat",
    "`columns`, `binary`",
    "`columns`: by the topic's schema. `binary`: one column `value` with the bytes of each message.",
    one_of("columns", "binary"),
    default="columns",
)


def _metadata_url(name: str, text: str) -> ServiceUrl:
    found = parse_service_url(f"The option {name}", text)
    if found.scheme != "zk":
        raise bad(name, text, "cuts are found by records in ZooKeeper only", "Write zk://host:2181/chroot, or leave it out.")
    return found


ADMIN_URL: Final = without(
    Option("adminUrl", "", "", words), "a read from a Pulsar cluster", "it is for writes, which create topics; a read creates none"
)
METADATA_URL: Final[Option[ServiceUrl]] = Option(
    "metadataUrl",
    "`zk://h:p[,h:p]/chroot`",
    "The metadata store of the Pulsar cluster, if it is ZooKeeper. Cuts are then found by the watermark records of the brokers, "
    "also while transactions are open, and rows that a broker shows by mistake after its crash are not read. It is only read.",
    _metadata_url,
    default_note="cuts are found by probes",
)
_NAME: Final = "`topic://tenant/namespace/name`, a bare `name` (for `topic://public/default/name`), or `persistent://...`"

SOURCE: Final = OptionTable(
    "source",
    (
        PULSAR_URL,
        replace(others.TOPIC, values=_NAME, meaning="The topic to read; also the argument of `load`."),
        others.TOPICS,
        TOPICS_PATTERN,
        STARTING_OFFSETS,
        ENDING_OFFSETS,
        others.STARTING_TIMESTAMP,
        replace(others.ENDING_TIMESTAMP, meaning="Ends before the first entry of each segment that was published after this time."),
        _without(others.TIMESTAMP_TIMEOUT, "clients set the publish times, so no wait makes a time final"),
        replace(
            others.SUBSCRIPTION,
            values="name, or `auto`",
            meaning="A durable subscription that keeps unread entries from retention. It is made if it does not exist, and moves "
            "as batches end. It keeps the last entry that was read. `auto`: one for each query, whose name is in the query's "
            "offsets. The positions of the stream are in its checkpoint, and not in the subscription.",
            only="stream",
            why="a batch acknowledges nothing; `txn.read` of `cluster.transaction()` does",
        ),
        replace(
            others.ACKNOWLEDGED,
            meaning="Acknowledged rows to leave out, by segment (JSON). `txn.read` sets it together with `startingOffsets` and "
            "`endingOffsets`. The read then takes exactly the entries between these positions, and asks for no cut.",
        ),
        replace(
            others.MAX_ROWS,
            meaning="Soft limit of a micro-batch, which takes whole entries, and whole transactions of txnsegment's writers. Each "
            "segment gets the same share, and at least one entry.",
        ),
        replace(others.MAX_BYTES, meaning="The same limit by the size of the entries. If both are given, the lower one counts."),
        _without(others.MIN_ROWS, "its broker does not say how many rows are unread", _TRIGGER),
        _without(others.MAX_DELAY, "its broker does not say how many rows are unread", _TRIGGER),
        replace(
            others.MIN_PARTITIONS,
            meaning="The least number of tasks of a read that has as many entries. Several tasks may then read one segment, each a "
            "part of its entries. A key's rows are in order in each task, and the tasks of a segment follow one another.",
        ),
        replace(
            others.PARTITION_BYTES,
            meaning="The approximate limit of bytes that a task reads. It is estimated by the sizes of a few entries.",
        ),
        replace(
            others.ISOLATION_LEVEL,
            parse=one_of("read_committed"),
            values="`read_committed`",
            meaning="A Pulsar broker shows committed rows only.",
        ),
        others.FAIL_ON_DATA_LOSS,
        replace(
            others.TOPICS_CHANGED,
            meaning="If a restarted query names other topics than its checkpoint, or another pattern: `fail` is an error; "
            "`continue` reads added topics from their beginning, and leaves out those that are not named any more.",
        ),
        _without(others.SCHEMA_CHANGE, "values of newer schema versions are read into the columns of the query's start"),
        others.COLUMNS,
        replace(
            others.INCLUDE_METADATA,
            meaning="Adds the columns `__topic`, `__segment`, `__messageId` (`ledger:entry:index`), `__publishTime` and `__txnId`, "
            "and `__key`, `__properties`, `__eventTime` and `__orderingKey`.",
        ),
        VALUE_FORMAT,
        replace(
            others.SCHEMA_VERSION,
            meaning="Reads into the columns of this version of the topic's schema (from 0). Each value is decoded by its own one.",
        ),
    ),
    spark_own=(others.PATH, others.PATHS),
    more=(METADATA_URL, ADMIN_URL),
)
