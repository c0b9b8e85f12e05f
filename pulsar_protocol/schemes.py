"""The schemes of Pulsar's service URLs. Each read and write of Spark imports this module, so it imports nothing heavy."""

from __future__ import annotations

from typing import Final

SCHEMES: Final = {"pulsar": 6650, "pulsar+ssl": 6651}
"""The schemes of a service URL, each with its default port."""


def scheme_of(url: str) -> str:
    """Return the scheme of a service URL, in lower case. Spaces around the URL do not count. Empty if the URL has no scheme."""
    scheme, separator, _ = url.strip().partition("://")
    return scheme.lower() if separator else ""


def is_pulsar(url: str) -> bool:
    """Return whether a service URL is one of Pulsar. Spark's reads and writes, `connect` and `doctor` all decide by this."""
    return scheme_of(url) in SCHEMES
