"""One deployment: its metadata store, its ledger storage, its settings. Everything above is handed one of these."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from ledgers.storage import LedgerStorage
from metadata import paths
from metadata.clock import Clock, SystemClock
from metadata.errors import BadVersion, ClusterFormatError, ConfigurationError, StorageError, UnknownOutcome
from metadata.records import FORMAT_VERSION, ClusterRecord, Settings
from metadata.service import ServiceUrl, embedded_ledgers, parse_service_url
from metadata.service import service_url as given_or_environment
from metadata.store import open_store
from metadata.store.contract import ABSENT, MetadataStore, Record

MARK = "cluster.json"
"""In the ledger root: whose it is."""


@dataclass
class Cluster:
    """`unique` gives names that nobody else gives; `owner` says who we are in headers, for people to read."""

    url: str
    store: MetadataStore
    storage: LedgerStorage
    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    unique: Callable[[], str] = lambda: uuid.uuid4().hex
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")

    def close(self) -> None:
        self.store.close()


def open_cluster(
    service_url: str | None = None,
    *,
    ledgers: str | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    create: bool = True,
) -> Cluster:
    """Open the cluster behind a service URL (default: TXNSEGMENT_SERVICE_URL).

    An embedded cluster (`file:///path`) is made on first use; one on ZooKeeper must have been made with `ledgers` (a URI), by
    `txnsegment init` or here. Raises ConfigurationError (no such cluster, other ledgers than it has) and ClusterFormatError
    (made by a newer version).
    """
    service = resolve(service_url)
    clock = clock or SystemClock()
    store = open_store(service.text, clock=clock, create=create)
    try:
        record = store.view().get(paths.CLUSTER)
        if record is None:
            if ledgers is None:
                ledgers = _embedded(service)
            record = _found(store, service.text, ledgers, settings or Settings())
        known = read_cluster_record(record, service.text)
        if ledgers is not None and LedgerStorage(ledgers).uri != known.ledgers:
            raise ConfigurationError(
                f"The cluster {service} keeps its ledgers in {known.ledgers}, not in {ledgers}.",
                advice="Leave the ledgers out (the cluster remembers them), or use another chroot or folder.",
            )
        storage = LedgerStorage(known.ledgers)
        _own(storage, known.id, service.text)
        return Cluster(service.text, store, storage, known.settings, clock)
    except BaseException:
        store.close()
        raise


def read_cluster_record(record: Record, url: str) -> ClusterRecord:
    """Raises ClusterFormatError for a format that is newer than ours."""
    known = ClusterRecord.of(record)
    if known.format_version > FORMAT_VERSION:
        raise ClusterFormatError(
            f"The cluster {url} has format version {known.format_version}; this txnsegment knows up to {FORMAT_VERSION}.",
            advice="Upgrade txnsegment.",
        )
    return known


def resolve(service_url: str | None) -> ServiceUrl:
    """The service URL given, else the environment's. Raises OptionError."""
    return given_or_environment(None if service_url is None else parse_service_url("The service URL", service_url))


def _embedded(service: ServiceUrl) -> str:
    if service.scheme != "file":
        raise ConfigurationError(
            f"There is no cluster at {service}.",
            advice=f"Make one: txnsegment init {service} --ledgers URI (a folder or bucket that all executors reach).",
        )
    return embedded_ledgers(service)


def _found(store: MetadataStore, url: str, ledgers: str, settings: Settings) -> Record:
    """Make the cluster's record; whoever comes second gets the first one's. Raises ConfigurationError for a root in use."""
    storage = LedgerStorage(ledgers)
    storage.create()
    if next(iter(storage.list("")), None) is not None:
        made = store.view().get(paths.CLUSTER)
        if made is None:
            raise ConfigurationError(
                f"The ledger root {storage.uri} is not empty, and {url} is a new cluster.",
                advice="Give an empty folder or prefix of its own: sweeping deletes old files that no cluster record names.",
            )
        return made
    record = ClusterRecord(id=uuid.uuid4().hex, ledgers=storage.uri, created_at_ms=store.view().now_ms(), settings=settings)
    try:
        return store.put(paths.CLUSTER, record.to_bytes(), expect=ABSENT)
    except (BadVersion, UnknownOutcome):
        made = store.view().get(paths.CLUSTER)
        if made is None:
            raise
        return made


def _own(storage: LedgerStorage, cluster_id: str, url: str) -> None:
    """Mark the ledger root as this cluster's, or find it so: two clusters on one root would sweep each other's parts away.

    Raises ConfigurationError: the root has another cluster's mark (or another volume is mounted there).
    """
    if storage.info(MARK) is None:
        try:
            storage.publish(MARK, json.dumps({"cluster": cluster_id}).encode())
            return
        except StorageError:
            if storage.info(MARK) is None:
                raise
    try:
        found = json.loads(storage.read(MARK)).get("cluster")
    except ValueError as error:
        raise ConfigurationError(f"{storage.uri}/{MARK} is damaged: {error}.", advice="Restore it from a copy.") from error
    if found != cluster_id:
        raise ConfigurationError(
            f"The ledger root {storage.uri} belongs to another cluster than {url}.",
            advice="Is the right volume mounted, the right folder named? Each cluster needs a ledger root of its own.",
        )
