"""The errors for calls that a Pulsar cluster does not have. Other calls need Pulsar's REST interface, which `rest` returns."""

from __future__ import annotations

import os
from collections.abc import Mapping

from metadata.common.errors import NotAllowed, OptionError
from pulsar_protocol.rest import Rest
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE


def refusal(owner: object, call: str, reasons: Mapping[str, str], name: str) -> Exception:
    """Return the error for an attribute that an object does not have. `call`: the name of the object in programs, such as
    `cluster`. `reasons`: what to do in place of each call that only the clusters of txnsegment have. `name`: the attribute.
    """
    if name not in reasons:
        return AttributeError(f"{type(owner).__name__} has no attribute {name!r}")
    return NotAllowed(f"{call}.{name} does not exist for a Pulsar cluster.", advice=reasons[name])


def admin_url() -> str | None:
    """Return the URL of the REST interface that the environment names, or None."""
    return os.environ.get(ADMIN_VARIABLE, "").strip().rstrip("/") or None


def rest(what: str) -> Rest:
    """Return the REST interface that the environment names. `what`: the call that needs it. Raises OptionError."""
    url = admin_url()
    if url is None:
        raise OptionError(
            f"{what} needs Pulsar's REST interface: the binary protocol has no such request.",
            advice=f"Set the variable {ADMIN_VARIABLE}, such as http://host:8080.",
        )
    return Rest(url)


def path_of(topic: str) -> str:
    """Return the beginning of the path of a topic in the REST interface."""
    scheme, _, name = topic.partition("://")
    return f"/admin/v2/{'scalable' if scheme == 'topic' else scheme}/{name}"
