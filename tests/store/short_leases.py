"""The stores with short leases and little patience, for cases that wait for either. Processes of a case import it by its name."""

from __future__ import annotations

from metadata.store import folder_of, open_store
from metadata.store.contract import MetadataStore
from metadata.store.sqlite import SqliteStore
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root


def open_impatiently(url: str) -> MetadataStore:
    """As `open_store`; a killed process's ephemeral records last about two seconds, and so does waiting for a server."""
    if url.startswith("file://"):
        return SqliteStore(folder_of(url), lease_ms=2_000)
    if url.startswith("zk://"):
        return ZooKeeperStore(*hosts_and_root(url), connect_seconds=2, session_seconds=2)
    return open_store(url)
