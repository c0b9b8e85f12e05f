"""Metadata stores: the contract, and one module for each backend. `open_store` chooses the backend by the service URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ledgers.credentials import shown
from metadata.common.errors import ConfigurationError

if TYPE_CHECKING:
    from metadata.common.clock import Clock
    from metadata.store.contract import MetadataStore

ENTRY_POINTS = "txnsegment.metadata_stores"
"""The entry-point group in which other packages add stores. The name of an entry point is the scheme of the service URLs. The entry
point's object is a callable with the signature of `open_store`.
"""

_ADVICE = "Write file:///folder, zk://host:port,host:port/chroot or memory://name; pulsar://host:6650 for a Pulsar cluster."
_REST = (
    "If this is the REST interface of a Pulsar cluster: write pulsar://host:6650 (the port of the binary protocol). Give the "
    "http:// URL to writes as the option adminUrl, or set the variable TXNSEGMENT_PULSAR_ADMIN_URL."
)


def open_store(url: str, *, clock: Clock | None = None, create: bool = True) -> MetadataStore:
    """Open the metadata store of a service URL.

    `url` is `file:///folder` (SQLite in that folder), `zk://host:port[,host:port]/chroot`, `memory://name` (a store in this
    process), or has a scheme of an installed package (entry-point group `txnsegment.metadata_stores`). `create`: whether to create
    a missing folder, database or chroot. With False a missing one raises ConfigurationError. Raises ConfigurationError (the URL,
    folder or server cannot work), ClusterFormatError (not a txnsegment database, or one of another version of txnsegment),
    Unavailable (no server answers in time).
    """
    # Backends are imported late, because an import of the contract also runs this module and must not load a backend.
    scheme, found, rest = url.partition("://")
    if not found:
        raise ConfigurationError(f"{shown(url)} is not a service URL.", advice=_ADVICE)
    if "@" in rest.partition("/")[0]:
        raise ConfigurationError(
            f"The service URL {scheme}://... contains credentials.",
            advice="Give credentials by environment variables (TXNSEGMENT_ZK_AUTH and others) or a file, never in the URL.",
        )
    if scheme == "file":
        from metadata.store.sqlite import SqliteStore

        return SqliteStore(folder_of(url), clock=clock, create=create)
    if scheme == "zk":
        from metadata.store.zookeeper import ZooKeeperStore

        return ZooKeeperStore.from_url(url, clock=clock, create=create)
    if scheme == "memory":
        from metadata.store.memory import MemoryStore

        name = url.removeprefix("memory://")
        if not name:
            raise ConfigurationError("memory:// needs a name.", advice="Write memory://name.")
        return MemoryStore(name, clock=clock)
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS, name=scheme):
        open_other: Callable[..., MetadataStore] = point.load()
        return open_other(url, clock=clock, create=create)
    raise ConfigurationError(
        f"No metadata store is known for {scheme}:// ({shown(url)}).", advice=_REST if scheme in ("http", "https") else _ADVICE
    )


def folder_of(url: str) -> str:
    """Return the folder that the URL `file:///folder` names. Raises ConfigurationError."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigurationError(f"{shown(url)} is not a URL.", advice="Write file:///absolute/folder.") from error
    folder = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not folder.startswith("/") or parts.query or parts.fragment or "\0" in folder:
        raise ConfigurationError(f"{shown(url)} does not name a folder of this machine.", advice="Write file:///absolute/folder.")
    return folder
