"""Functions that open stores with a short lease or short timeouts, for tests that wait. Child processes import them by name."""

from __future__ import annotations

from metadata.store import folder_of, open_store
from metadata.store.contract import MetadataStore
from metadata.store.sqlite import SqliteStore
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root

LEASE_SECONDS = 3


def open_mortal(url: str) -> MetadataStore:
    """Open a store like `open_store`, for a process that will be killed. Its ephemeral records end about three seconds later."""
    if url.startswith("file://"):
        return SqliteStore(folder_of(url), lease_ms=LEASE_SECONDS * 1000)
    if url.startswith("zk://"):
        return ZooKeeperStore(*hosts_and_root(url), session_seconds=LEASE_SECONDS)
    return open_store(url)


def open_impatiently(url: str) -> MetadataStore:
    """Open a store like `open_store`, but wait only five seconds for a server."""
    return ZooKeeperStore(*hosts_and_root(url), connect_seconds=5) if url.startswith("zk://") else open_store(url)
