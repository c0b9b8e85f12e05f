"""`cluster.scaling`: whether, and when, the segments of topics split and merge by themselves."""

from __future__ import annotations

from datetime import timedelta

from metadata.client.client import Client
from metadata.common.errors import OptionError
from metadata.records.records import Policies
from metadata.rules.retention import NO_LIMIT
from metadata.rules.scaling import Rule, rule
from metadata.topics import policies
from txnsegment.topics import going_on, scalable

FIELDS = ("split_rows_per_second", "split_bytes_per_second", "min_segments", "max_segments", "scaling_cool_down_ms")


class ClusterScaling:
    """Policies of topics (`topic://tenant/namespace/name`, or a bare name) and of namespaces (`namespace://tenant/namespace`)."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, name: str) -> Rule | None:
        """What holds for a topic: its own policy, else its namespace's; or what a namespace says. None: nothing splits or merges by
        itself. Raises TopicNotFound.
        """
        if not name.startswith(policies.NAMESPACE):
            name = str(going_on(self._client, name))
        return rule(policies.get(self._client.cluster, self._client.topics, name))

    def set(
        self,
        name: str,
        *,
        rows_per_second: int | None = None,
        bytes_per_second: int | None = None,
        min_segments: int | None = None,
        max_segments: int | None = None,
        cool_down: timedelta | None = None,
    ) -> Policies:
        """Say when the segments of a topic, or of each topic of a namespace, split and merge: a segment that gets more rows or
        bytes a second is halved, two neighbours that together get at most half of that are joined, within `min_segments` (1) and
        `max_segments` (64). Rates are over the last `cool_down` (one minute), and a new segment is left alone for as long. A rate
        of -1: no limit, whatever the namespace says. What is left out stays as it is; `clear` takes all back.

        Of the sweepers that stay (`txnsegment sweep --every 10s`) the one that leads carries it out, and `cluster.sweep()` if it
        gets to lead. What is set now for this topic or namespace alone. Raises TopicNotFound, OptionError.
        """
        name = self._standing(name)
        change: dict[str, int | bool | None] = {}
        for field, option, value in (
            ("split_rows_per_second", "rows_per_second", rows_per_second),
            ("split_bytes_per_second", "bytes_per_second", bytes_per_second),
            ("min_segments", "min_segments", min_segments),
            ("max_segments", "max_segments", max_segments),
        ):
            if value is not None:
                if value < 1 and value != NO_LIMIT:
                    raise OptionError(f"{option} is {value}.", advice="Give at least 1, or -1 for none.")
                change[field] = value
        if cool_down is not None:
            if cool_down < timedelta(seconds=1):
                raise OptionError(f"cool_down is {cool_down}.", advice="Rates are measured over it: give at least a second.")
            change["scaling_cool_down_ms"] = cool_down // timedelta(milliseconds=1)
        if min_segments is not None and max_segments is not None and NO_LIMIT != max_segments < min_segments:
            raise OptionError(
                f"min_segments = {min_segments} is above max_segments = {max_segments}.", advice="Lower the one or raise the other."
            )
        return policies.put(self._client.cluster, name, change)

    def clear(self, name: str) -> Policies:
        """Take back what was said of a topic or a namespace. Raises TopicNotFound."""
        return policies.put(self._client.cluster, self._standing(name), dict.fromkeys(FIELDS))

    def _standing(self, name: str) -> str:
        """A namespace, or the topic that the name stands for. Raises OptionError for a persistent topic."""
        if name.startswith(policies.NAMESPACE):
            return name
        return str(scalable(self._client, name, "It neither splits nor merges"))
