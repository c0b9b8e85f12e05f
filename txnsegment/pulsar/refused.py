"""The errors for calls that a Pulsar cluster does not have. Other calls need Pulsar's REST interface, which `rest` returns."""

from __future__ import annotations

from collections.abc import Mapping

from metadata.common.errors import NotAllowed, OptionError
from pulsar_protocol.rest import ADMIN_VARIABLE, Rest, admin_url


def refusal(owner: object, call: str, reasons: Mapping[str, str], name: str) -> Exception:
    """Return the error for an attribute that an object does not have. `call`: the name of the object in programs, such as
    `cluster`. `reasons`: what to do in place of each call that only the clusters of txnsegment have. `name`: the attribute.
    """
    if name not in reasons:
        return AttributeError(f"{type(owner).__name__} has no attribute {name!r}")
    return NotAllowed(f"{call}.{name} does not exist for a Pulsar cluster.", advice=reasons[name])


def rest(what: str) -> Rest:
    """Return the REST interface that the environment names. `what`: the call that needs it. Raises OptionError."""
    url = admin_url()
    if url is None:
        raise OptionError(
            f"{what} needs Pulsar's REST interface: the binary protocol has no such request.",
            advice=f"Set the variable {ADMIN_VARIABLE}, such as http://host:8080.",
        )
    return Rest(url)
