"""The policies of a topic, which are in its layout, and of a namespace, which are in a record of their own. This module reads the
effective policies, and changes policies by CAS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, OptionError, UnknownOutcome
from metadata.records import paths
from metadata.records.names import TopicName, any_topic_name, check_new
from metadata.records.records import Layout, Policies
from metadata.rules.retention import effective
from metadata.store.contract import ABSENT, View, decide, look, until
from metadata.topics.topics import Topic, Topics, not_found

NAMESPACE = "namespace://"
_WHOLE = re.compile(NAMESPACE + r"([^/\s]+)/([^/\s]+)")
Change = Mapping[str, int | bool | None]
"""Fields of Policies with their new values; None unsets a field."""


def holding(cluster: Cluster, topics: Iterable[Topic]) -> list[tuple[Topic, Policies]]:
    """Return each topic with its effective policies. For a policy that a topic does not set, the policy of its namespace applies.
    The records of all namespaces are read in one round trip.
    """
    found = list(topics)
    spaces = sorted({(t.name.tenant, t.name.namespace) for t in found})
    keys = [paths.namespace(*space) for space in spaces]
    records = decide(cluster.store, lambda view: view.get_many(keys)) if keys else []
    said = {space: None if r is None else Policies.of(r) for space, r in zip(spaces, records, strict=True)}
    return [(t, effective(t.layout.policies, said[t.name.tenant, t.name.namespace])) for t in found]


def get(cluster: Cluster, topics: Topics, name: str) -> Policies:
    """Return the effective policies of a topic, or the policies of a `namespace://tenant/namespace`. Raises TopicNotFound,
    OptionError.
    """
    if not name.startswith(NAMESPACE):
        ((_, found),) = holding(cluster, [topics.get(any_topic_name(name))])
        return found
    record = look(cluster.store, paths.namespace(*namespace_of(name)))
    return effective(None, None if record is None else Policies.of(record))


def put(cluster: Cluster, name: str, change: Change) -> Policies:
    """Change some policies of a topic (`set_for_topic`) or of a `namespace://tenant/namespace` (`set_for_namespace`). Raises
    TopicNotFound, OptionError.
    """
    if not name.startswith(NAMESPACE):
        return set_for_topic(cluster, any_topic_name(name), change)
    return set_for_namespace(cluster, *namespace_of(name), change)


def namespace_of(text: str) -> tuple[str, str]:
    """Return tenant and namespace of `namespace://tenant/namespace`. Raises OptionError."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise OptionError(f"{text!r} is not a namespace.", advice="Write namespace://tenant/namespace.")
    return found[1], found[2]


def set_for_topic(cluster: Cluster, name: TopicName, change: Change) -> Policies:
    """Change some of the topic's own policies. Return all policies that the topic itself sets. Raises TopicNotFound."""

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
    """Change some policies of a namespace. Return all policies of the namespace. A policy that a topic sets itself wins over that
    of the namespace. Raises OptionError for a name that a new namespace cannot have.
    """
    check_new(TopicName(tenant, namespace, ""))
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
