"""Short names in scripts. `a` is the only segment of topic a, `t.0` is segment 0 of topic t. All topics are in public/default."""

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
    """Return (key, JSON) of all records below a path. The JSON is decoded here, not by the code under test."""
    return [(r.key, json.loads(r.value)) for r in state.scan(KeyRange(start, start + "~", ""))]


def layouts(state: MemoryState) -> dict[str, Any]:
    """Return short name of a topic -> its layout. The layout of a deleted topic is a tombstone."""
    return {paths.topic_at(key.path).name: layout for key, layout in records(state, "/topics/")}


def segments(state: MemoryState, topic: str) -> list[str]:
    """Return the full names of all segments in a topic's layout, in the order of their ids. The topic may be a deleted one."""
    layout = layouts(state).get(topic)
    if layout is None:
        raise ScriptError(f"there is no topic {topic}")
    name = topic_name(topic)
    return [
        f"segment://{name.tenant}/{name.namespace}/{name.name}/{i['hashRange']['start']:04x}-{i['hashRange']['end']:04x}-{n}"
        for n, i in sorted(layout["segments"].items(), key=lambda found: int(found[0]))
    ]


def segment(state: MemoryState, short: str) -> str:
    """Return the full name of a segment: `t.0` is segment 0 of topic t, `a` the only segment of topic a. Raises ScriptError."""
    topic, _, number = short.partition(".")
    found = [s for s in segments(state, topic) if not number or s.endswith(f"-{number}")]
    if len(found) != 1:
        raise ScriptError(f"{short} is not one segment: {topic} has {len(segments(state, topic))}")
    return found[0]


def short(state: MemoryState, full: str) -> str:
    """Return the short name of a segment or topic."""
    if full.startswith("topic://"):
        return topic_name(full).name
    if full.startswith("persistent://"):  # the first segment of a migrated topic has the old topic's name
        return full
    name = segment_name(full)
    layout = layouts(state).get(name.topic.name)
    if layout is not None and layout["nextSegmentId"] == 1:
        return name.topic.name
    return f"{name.topic.name}.{name.segment_id}"


def shortened(state: MemoryState, text: str) -> str:
    """Return the text with all full names replaced by short names."""
    return _FULL.sub(lambda found: short(state, found[0].rstrip(".")) + ("." if found[0].endswith(".") else ""), text)
