"""`cluster.scaling`: the policies by which sweepers split and merge segments."""

from __future__ import annotations

from datetime import timedelta

from metadata.client.client import Client
from metadata.common.errors import OptionError
from metadata.records.records import Policies
from metadata.rules.retention import NO_LIMIT
from metadata.rules.scaling import Rule, rule
from metadata.topics import policies
from txnsegment.topics import current_topic, scalable

FIELDS = ("split_rows_per_second", "split_bytes_per_second", "min_segments", "max_segments", "scaling_cool_down_ms")


class ClusterScaling:
    """The scaling policies of topics (`topic://tenant/namespace/name`, or a bare name) and of namespaces
    (`namespace://tenant/namespace`).

        cluster.scaling.set("orders", rows_per_second=100_000, max_segments=16)
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, name: str) -> Rule | None:
        """Return the effective policy of a topic. A value that the topic does not set comes from its namespace. For a namespace,
        return its own policy. None: segments are never split or merged automatically. Raises TopicNotFound.
        """
        if not name.startswith(policies.NAMESPACE):
            name = str(current_topic(self._client, name))
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
        """Set when the segments of a topic, or of each topic of a namespace, split and merge. A value that is left out does not
        change; `clear` removes all.

        `rows_per_second`, `bytes_per_second`: limits for each segment. A segment that receives more than a limit is split into
        halves. -1: no limit, also if the namespace sets one. `min_segments`, `max_segments` (default 64): bounds of the number of
        active segments. If `min_segments` is set, two neighbouring segments that together receive at most half of each limit are
        merged. Without it no segments are merged, so that no layout that was made by hand is undone unasked.
        `cool_down` (default one minute): rates are averages over this time, and a new segment is not split or merged for this time.

        The leader among the running sweepers (`txnsegment sweep --every 10s`) splits and merges. `cluster.sweep()` also does, if it
        becomes the leader. Returns the policies set for this topic or namespace itself. Raises TopicNotFound, OptionError.
        """
        name = self._policy_name(name)
        change: dict[str, int | bool | None] = {}
        for field, option, value in (
            ("split_rows_per_second", "rows_per_second", rows_per_second),
            ("split_bytes_per_second", "bytes_per_second", bytes_per_second),
            ("min_segments", "min_segments", min_segments),
            ("max_segments", "max_segments", max_segments),
        ):
            if value is not None:
                if value < 1 and value != NO_LIMIT:
                    raise OptionError(f"{option} is {value}, which is below 1.", advice="Give at least 1, or -1 for no limit.")
                change[field] = value
        if cool_down is not None:
            if cool_down < timedelta(seconds=1):
                raise OptionError(f"cool_down is {cool_down}, which is less than a second.", advice="Give at least a second.")
            change["scaling_cool_down_ms"] = cool_down // timedelta(milliseconds=1)
        if min_segments is not None and max_segments is not None and NO_LIMIT != max_segments < min_segments:
            raise OptionError(
                f"min_segments = {min_segments} is above max_segments = {max_segments}.",
                advice="Lower min_segments or raise max_segments.",
            )
        return policies.put(self._client.cluster, name, change)

    def clear(self, name: str) -> Policies:
        """Remove the policy that was set for this topic or namespace. Raises TopicNotFound."""
        return policies.put(self._client.cluster, self._policy_name(name), dict.fromkeys(FIELDS))

    def _policy_name(self, name: str) -> str:
        """Return the name whose record holds the policy. This is a namespace or a topic with segments. Raises OptionError for a
        marker-based topic.
        """
        if name.startswith(policies.NAMESPACE):
            return name
        return str(scalable(self._client, name, "It neither splits nor merges"))
