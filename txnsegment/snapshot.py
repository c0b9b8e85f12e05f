"""`cluster.snapshot`: a value of `endingOffsets` with which several reads return the same rows."""

from __future__ import annotations

import json
from collections.abc import Sequence

from metadata.client.client import Client
from metadata.common.errors import OptionError
from metadata.common.options import option_text
from metadata.read.selection import Position, offset_json
from spark_txn_source.current_names import with_current_names
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import read_batch

ALLOWED = ("topicspattern", "endingtimestamp", "timestamptimeoutms")


def snapshot(client: Client, topic: str | Sequence[str] | None, options: dict[str, object]) -> str:
    """Return the current state of topics (`Cluster.snapshot`). Raises OptionError, TopicNotFound, OffsetOutOfRange."""
    given = {name: text for name, value in options.items() if (text := option_text(name, value)) is not None}
    for name in given:
        if name.lower() not in ALLOWED:
            raise OptionError(
                f"snapshot() does not take {name}, which is an option of reads.",
                advice="It takes topicsPattern, endingTimestamp and timestampTimeoutMs. Give other options to the read.",
            )
    if isinstance(topic, str):
        given["path"] = topic
    elif topic is not None:
        given["topics"] = option_text("topics", list(topic))
    parsed = with_current_names(client, ReadOptions.parse({**given, "serviceUrl": client.cluster.url}, streaming=False))
    # `read_batch` has no range for the log of a migrated topic that has no rows of its own. The position of this log stays 0:0.
    places = {log: Position(0, 0) for log in parsed.selection.logs}
    places |= {one.log: one.places[1] for one in read_batch(client, parsed)}
    return json.dumps(offset_json(places))
