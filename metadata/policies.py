"""Setting the policies of a topic (in its layout) and of a namespace (a record of its own). By CAS, again until it is done."""

from __future__ import annotations

from collections.abc import Mapping

from metadata import paths
from metadata.cluster import Cluster
from metadata.errors import BadVersion, UnknownOutcome
from metadata.names import TopicName
from metadata.records import Layout, Policies
from metadata.store.contract import ABSENT, View, decide, until
from metadata.topics import not_found

Change = Mapping[str, int | bool | None]
"""Fields of Policies with their new values; None: not said here any more."""


def set_for_topic(cluster: Cluster, name: TopicName, change: Change) -> Policies:
    """Change some of a topic's own policies; what they are then. Raises TopicNotFound."""

    def body(view: View) -> Policies | None:
        record = view.get(paths.topic(name))
        layout = None if record is None else Layout.of(record)
        if record is None or layout is None or layout.deleted:
            raise not_found(name)
        after = (layout.policies or Policies()).model_copy(update=dict(change))
        try:
            cluster.store.put(record.key, layout.model_copy(update={"policies": after}).to_bytes(), expect=record)
        except (BadVersion, UnknownOutcome):
            return None
        return after

    return until(lambda: decide(cluster.store, body))


def set_for_namespace(cluster: Cluster, tenant: str, namespace: str, change: Change) -> Policies:
    """Change some policies of a namespace, which hold for its topics that have none of their own; what they are then."""
    key = paths.namespace(tenant, namespace)

    def body(view: View) -> Policies | None:
        record = view.get(key)
        after = (Policies() if record is None else Policies.of(record)).model_copy(update=dict(change))
        try:
            cluster.store.put(key, after.to_bytes(), expect=ABSENT if record is None else record)
        except (BadVersion, UnknownOutcome):
            return None
        return after

    return until(lambda: decide(cluster.store, body))
