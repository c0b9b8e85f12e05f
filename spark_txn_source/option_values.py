"""The parsers of the values of options that only the source has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ledgers.json_text import read_json
from metadata.common.errors import OptionError
from metadata.common.options import LONG_MAX, bad, names, offset_json, unique_pairs, words
from metadata.read.selection import LOG, AtLog, Earliest, End, Latest, Position, Start
from metadata.records.names import PersistentName, SegmentName, TopicName, is_persistent, persistent_name, segment_name, topic_name
from metadata.records.patterns import compiled
from metadata.records.row_ranges import Rows, parse_all
from metadata.records.subscription_names import checked


def name_of(option: str, text: str) -> TopicName | SegmentName:
    word = words(option, text)
    low = word.lower()
    read = segment_name if low.startswith("segment:") else persistent_name if low.startswith("persistent:") else topic_name
    try:
        return read(word)
    except OptionError as e:
        raise OptionError(f"The option {option}: {e.message}", advice=e.advice) from e


def names_of(option: str, text: str) -> tuple[TopicName | SegmentName, ...]:
    return tuple(name_of(option, n) for n in names(option, text))


def paths(option: str, text: str) -> tuple[TopicName | SegmentName, ...]:
    if not text.lstrip().startswith("["):
        raise bad(option, text, "it is not a JSON list", 'Write load(["a", "b"]), or the option topics.')
    return names_of(option, text)


def regex(option: str, text: str) -> str:
    return compiled(words(option, text), f"option {option}").pattern


def subscription(option: str, text: str) -> str:
    return checked(words(option, text))


def acknowledged(option: str, text: str) -> Mapping[str, Rows]:
    try:
        found = read_json(text, pairs=unique_pairs)
        return {_segment(name): parse_all(ranges) for name, ranges in found.items()}
    except (ValueError, TypeError, AttributeError, OptionError) as e:
        raise bad(option, text, f"txn.read did not set it ({e})", "Read with txn.read(spark, topic, subscription=...).") from e


def _segment(name: str) -> str:
    return str(persistent_name(name) if is_persistent(name) else segment_name(name))


_OFFSET_ADVICE: Final = (
    'Write {"log": 41} with the number of a registration, or the endOffset of a query\'s progress; persistent:// topics are named '
    'beside it with a position each: {"log": 41, "persistent://t/n/x": "7:0"}.'
)
_PROGRESS: Final = ("read", "cluster", "deletedTo", "acked", "from", "initial", "began", "subscription", "ackedTo", "lag")
"""Further fields of the offset of a stream (`spark_txn_source.offsets`), as a query's progress shows it."""


def _offset(option: str, text: str) -> AtLog:
    try:
        found = offset_json(text)
    except ValueError as e:
        raise bad(option, text, f"it is neither a known word nor JSON ({e})", _OFFSET_ADVICE) from e
    if not isinstance(found, dict):
        raise bad(option, text, "it is not a JSON object with the field log", _OFFSET_ADVICE)
    positions = {name: place for name, place in found.items() if is_persistent(name)}
    if LOG not in found and not positions:
        raise bad(option, text, "it is not a JSON object with the field log", _OFFSET_ADVICE)
    if more := sorted(found.keys() - positions.keys() - {LOG, *_PROGRESS}):
        raise bad(option, text, f"it has unknown fields ({', '.join(more)})", _OFFSET_ADVICE)
    number = found.get(LOG, 0)
    if type(number) is not int or not 0 <= number <= LONG_MAX:
        raise bad(option, text, f"log must be a whole number from 0 to {LONG_MAX}", _OFFSET_ADVICE)
    placed = tuple(sorted(_position(option, text, name, place) for name, place in positions.items()))
    if found.get("acked"):
        raise bad(
            option,
            text,
            "it leaves out single rows that were acknowledged (acked), which a range of numbers cannot",
            'Give the option subscription in its place, or the number alone: {"log": 41}.',
        )
    cluster, read = found.get("cluster"), found.get("read")
    if not isinstance(cluster, str | None):
        raise bad(option, text, "the field cluster is not a text", _OFFSET_ADVICE)
    return AtLog(number, placed, LOG in found, cluster, None if read is None else json.dumps(read, sort_keys=True))


def _position(option: str, text: str, name: str, place: object) -> tuple[PersistentName, Position]:
    found = Position.parse(place) if isinstance(place, str) else None
    if found is None or found.ledger > LONG_MAX:
        raise bad(option, text, f"the position of {name} is not ledger:entry", _OFFSET_ADVICE)
    try:
        return persistent_name(name), found
    except OptionError as e:
        raise OptionError(f"The option {option}: {e.message}", advice=e.advice) from e


def start(option: str, text: str) -> Start:
    match text.strip().lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    return _offset(option, text)


def end(option: str, text: str) -> End:
    match text.strip().lower():
        case "earliest":
            raise bad(option, text, "a read cannot end at its start", 'Write latest or {"log": 41}.')
        case "latest":
            return Latest()
    return _offset(option, text)


def columns(option: str, text: str) -> tuple[str, ...]:
    found = names(option, text)
    seen: set[str] = set()
    for column in found:
        if column.lower() in seen:
            raise bad(option, text, f"the column {column} is named twice", "Name each column once.")
        seen.add(column.lower())
    return found
