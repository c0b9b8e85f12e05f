"""Short names in scripts: `a` is the one segment of topic a, `t.0` segment 0 of topic t; all topics lie in public/default."""

from __future__ import annotations

import json
import re
from typing import Any

from conformance.scripts.parsing import ScriptError
from metadata.records import paths
from metadata.records.names import segment_name, topic_name
from metadata.records.paths import Key, KeyRange
from metadata.store.memory import MemoryState

_FULL = re.compile(r"(segment|topic)://public/default/[^\s,;:'\"\]]+")


def records(state: MemoryState, start: str) -> list[tuple[Key, Any]]:
    """Key and decoded JSON of all records below a path. They are decoded here, without the code under test."""
    return [(r.key, json.loads(r.value)) for r in state.scan(KeyRange(start, start + "~", ""))]


def layouts(state: MemoryState) -> dict[str, Any]:
    """The layout of each topic by its short name, including tombstones."""
    return {paths.topic_at(key.path).name: layout for key, layout in records(state, "/topics/")}


def segments(state: MemoryState, topic: str) -> list[str]:
    """The full names of a topic's segments in its layout by id, including those of a deletion."""
    layout = layouts(state).get(topic)
    if layout is None:
        raise ScriptError(f"there is no topic {topic}")
    name = topic_name(topic)
    return [
        f"segment://{name.tenant}/{name.namespace}/{name.name}/{i['hashRange']['start']:04x}-{i['hashRange']['end']:04x}-{n}"
        for n, i in sorted(layout["segments"].items(), key=lambda found: int(found[0]))
    ]


def segment(state: MemoryState, short: str) -> str:
    """The full name of `t.0`, or of `a`, which has one segment."""
    topic, _, number = short.partition(".")
    found = [s for s in segments(state, topic) if not number or s.endswith(f"-{number}")]
    if len(found) != 1:
        raise ScriptError(f"{short} is not one segment: {topic} has {len(segments(state, topic))}")
    return found[0]


def short(state: MemoryState, full: str) -> str:
    """The short name of a segment or topic."""
    if full.startswith("topic://"):
        return topic_name(full).name
    if full.startswith("persistent://"):  # a migrated topic
        return full
    name = segment_name(full)
    layout = layouts(state).get(name.topic.name)
    if layout is not None and layout["nextSegmentId"] == 1:
        return name.topic.name
    return f"{name.topic.name}.{name.segment_id}"


def shortened(state: MemoryState, text: str) -> str:
    """A message with its full names replaced by short names."""
    return _FULL.sub(lambda found: short(state, found[0].rstrip(".")) + ("." if found[0].endswith(".") else ""), text)
