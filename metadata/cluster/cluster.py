"""An open cluster: its metadata store, ledger storage and settings. Other packages get the `Cluster` as an argument."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ledgers.storage import LedgerStorage
from metadata.cluster import clock_looks, ledger_root
from metadata.cluster.figures import Figures
from metadata.cluster.ledger_root import MARK, UNFINISHED, Mark, marked
from metadata.cluster.places import Place, place_of
from metadata.common.clock import Clock, SystemClock
from metadata.common.errors import (
    BadVersion,
    ClusterFormatError,
    ConfigurationError,
    OffsetOutOfRange,
    RestoreRefused,
    StorageError,
    UnknownOutcome,
)
from metadata.common.service import ServiceUrl, embedded_ledgers, parse_service_url
from metadata.common.service import service_url as given_or_environment
from metadata.records import paths
from metadata.records.cluster_records import FORMAT_VERSION, ClusterRecord, Founding, Lost, LostNumbers, Restoring, Settings
from metadata.store import open_store
from metadata.store.contract import ABSENT, MetadataStore, Record, decide, look, time_ms


@dataclass
class Cluster:
    """An open cluster.

    `unique` returns unique names. `owner` names this process in headers, for people. `lock` makes the locks that are held over
    several store calls; the simulator passes its own. `id`: the cluster id that the mark of the ledger root must have; None: no
    mark is needed (tests). `restored`: ranges of log numbers that restores lost. `place`: the place of the store when the cluster
    was opened. `format_version`: that of the cluster's record. `figures`: what this process counts about its work.
    """

    url: str
    store: MetadataStore
    storage: LedgerStorage
    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    unique: Callable[[], str] = lambda: uuid.uuid4().hex
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    lock: Callable[[], AbstractContextManager[object]] = threading.RLock
    id: str | None = None
    restored: tuple[Lost, ...] = ()
    place: Place | None = None
    format_version: int = FORMAT_VERSION
    figures: Figures = field(default_factory=Figures)

    @property
    def has_statistics(self) -> bool:
        """Whether the parts of this cluster get statistics. Versions before format 3 do not know them."""
        return self.format_version >= 3

    def close(self) -> None:
        self.store.close()

    def check_root(self) -> None:
        """Check, before files are deleted, that this cluster still owns the ledger root. A restore elsewhere or a copy of the store
        may have taken the root over. The store may also hold another cluster by now. Raises ConfigurationError.
        """
        if self.id is None:
            return
        record = _record(self.store, self.url)
        known = None if record is None else read_cluster_record(record, self.url)
        if known is None or known.id != self.id:
            raise ConfigurationError(
                f"The store {self.url} no longer holds the cluster that was opened there.",
                advice="Stop this process and open it again.",
            )
        if self.place is None:
            raise ValueError(f"{self.url} was opened without its place")
        ledger_root.check(self.storage, known, resolve(self.url), self.store, self.place)

    def check_not_lost(self, number: int) -> None:
        """Raise OffsetOutOfRange if a restore lost this number of the cluster's log."""
        check_not_lost(self.restored, number, self.url)

    def check_is_mine(self, cluster: str | None) -> None:
        """Raise OffsetOutOfRange for an offset of another cluster, whose numbers name other rows. `cluster`: the cluster id in the
        offset (None: an older version of txnsegment wrote the offset). If this cluster was restored from a backup of another
        cluster, offsets of that cluster are accepted.
        """
        before = [lost.was for lost in self.restored]
        if cluster is None or self.id is None or None in before or cluster in (self.id, *before):
            return
        raise OffsetOutOfRange(
            f"The offset is one of the cluster {cluster}, and {self.url} is the cluster {self.id}: it was created again, restored "
            "again, or is not the one of the checkpoint.",
            advice="Name the service URL of that cluster, or start anew, with a new checkpoint location and without this offset: a "
            "number of that cluster names another row here.",
        )

    def before_lost(self, number: int) -> int:
        """Return `number`, or the last number below the lost range if a restore lost `number` of the cluster's log."""
        return before_lost(self.restored, number)


def before_lost(restored: Iterable[LostNumbers], number: int) -> int:
    """Return `number`, or the last number below the lost range if a restore lost `number`. The log has no entry between the two."""
    return next((lost.after for lost in restored if lost.after < number < lost.before), number)


def check_not_lost(restored: Iterable[LostNumbers], number: int, what: str) -> None:
    """Raise OffsetOutOfRange if a restore lost this number of a log. The reader has seen rows that no longer exist, and their
    writers may write them again with higher numbers. `what`: the owner of the log, for the message.
    """
    for lost in restored:
        if lost.after < number < lost.before:
            raise OffsetOutOfRange(
                f"The offset {number} of {what} is from before it was restored, with what is up to {lost.after} alone.",
                advice=f"Rows above {lost.after} were read and are lost here; rows that their writers commit again get numbers "
                f"from {lost.before}. Use a new checkpoint, and start after {lost.after} to read these rows.",
            )


def open_cluster(
    service_url: str | None = None,
    *,
    ledgers: str | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    create: bool = True,
) -> Cluster:
    """Open the cluster behind a service URL (default: TXNSEGMENT_SERVICE_URL).

    An embedded cluster (`file:///path`) is created on first use. A cluster on ZooKeeper must be created with `ledgers` (a URI), by
    `txnsegment init` or by this call. Raises ConfigurationError (no such cluster, or its root is not `ledgers`) and
    ClusterFormatError (made by a newer version of txnsegment).
    """
    service = resolve(service_url)
    clock = clock or SystemClock()
    store = open_store(service.text, clock=clock, create=create)
    try:
        record = _record(store, service.text)
        if record is None:
            if ledgers is None:
                ledgers = _embedded(service)
            _found(store, service, ledgers, settings or Settings())
            record = _record(store, service.text)  # read again: a restore may have begun meanwhile
            assert record is not None
            clock_looks.look(store, clock)  # the first observation of the clock: elapsed time is measured from here
        known = read_cluster_record(record, service.text)
        storage = ledger_root.located(known, service)
        if ledgers is not None and LedgerStorage(ledgers).uri != storage.uri:
            raise ConfigurationError(
                f"The cluster {service} keeps its ledgers in {storage.uri}, not in {LedgerStorage(ledgers).uri}.",
                advice="Omit the ledgers (the cluster record has them), or use another chroot or folder.",
            )
        place = ledger_root.own(storage, known, service, store)
        return Cluster(
            service.text,
            store,
            storage,
            known.settings,
            clock,
            id=known.id,
            restored=known.restored or (),
            place=place,
            format_version=known.format_version,
        )
    except BaseException:
        store.close()
        raise


def take_over(service_url: str | None = None, *, clock: Clock | None = None) -> bool:
    """Make the store behind a service URL the owner of its ledger root, after the store was moved or copied. The previous owner can
    no longer be used. A repeated call completes an interrupted one. Return False if the store was the owner already. Raises
    ConfigurationError, StorageError, Unavailable.
    """
    service = resolve(service_url)
    clock = clock or SystemClock()
    with open_store(service.text, clock=clock, create=False) as store:
        record = _record(store, service.text)
        if record is None:
            raise ConfigurationError(
                f"There is no cluster at {service}.", advice="Name the URL of the store that was copied or moved."
            )
        known = read_cluster_record(record, service.text)
        return ledger_root.take_over(store, record, ledger_root.located(known, service), service, clock)


def _record(store: MetadataStore, url: str) -> Record | None:
    """Return the cluster's record, or None. Raises RestoreRefused while a restore into the store is incomplete."""
    record, restoring = decide(store, lambda view: view.get_many([paths.CLUSTER, paths.RESTORING]))
    if restoring is not None:
        begun = Restoring.of(restoring)
        raise RestoreRefused(
            f"The store {url} holds an incomplete cluster: a restore that {begun.by} began was not finished.",
            advice=f"Run the restore again with the same file (SHA-256 {begun.backup[:12]}..): "
            f"txnsegment restore FILE --service-url {url}",
        )
    return record


def read_cluster_record(record: Record, url: str) -> ClusterRecord:
    """Parse the cluster record. Raises ClusterFormatError for a format that is newer than this version of txnsegment."""
    known = ClusterRecord.of(record)
    if known.format_version > FORMAT_VERSION:
        raise ClusterFormatError(
            f"The cluster {url} has format version {known.format_version}; this txnsegment knows up to {FORMAT_VERSION}.",
            advice="Upgrade txnsegment.",
        )
    return known


def resolve(service_url: str | None) -> ServiceUrl:
    """Return the given service URL, or the one of the environment if none is given. Raises OptionError."""
    return given_or_environment(None if service_url is None else parse_service_url("The service URL", service_url))


def _embedded(service: ServiceUrl) -> str:
    if service.scheme != "file":
        raise ConfigurationError(
            f"There is no cluster at {service}.",
            advice=f"Make one: txnsegment init {service} --ledgers URI (a folder or bucket that all executors reach).",
        )
    return embedded_ledgers(service)


def _found(store: MetadataStore, service: ServiceUrl, ledgers: str, settings: Settings) -> Record:
    """Bootstrap a cluster: create its record, or return the record of a concurrent bootstrap. Raises ConfigurationError if the root
    has files, or the mark of another cluster.

    A bootstrap writes the id into the store, then the mark with the id into the root, then the cluster record into the store. So
    the next bootstrap completes an interrupted one, and a root is never taken from another cluster. Once the cluster record exists,
    a root without a mark is refused, because it may be the empty mount point of a missing volume.
    """
    storage = LedgerStorage(ledgers)
    storage.create()
    ledger_root.check_not_nested(storage, service.text)
    # A concurrent bootstrap writes the record FOUNDING and then its mark. Here the mark is read first. So if the mark is that of a
    # concurrent bootstrap, the record FOUNDING is found, too.
    if (other := marked(storage)) is not None and look(store, paths.FOUNDING) is None:
        raise ConfigurationError(
            f"The ledger root {storage.uri} is not empty, and {service} is a new cluster: the mark in it names the cluster "
            f"{other}.",
            advice="If the metadata store of that cluster was lost, restore a backup: txnsegment restore FILE --service-url "
            f"{service} Else give an empty folder or prefix of its own: sweeping deletes old files that no cluster record names.",
        )
    identity = _identity(store)
    in_use = ConfigurationError(
        f"The ledger root {storage.uri} is not empty, and {service} is a new cluster.",
        advice="Give an empty folder or prefix of its own: sweeping deletes old files that no cluster record names.",
    )
    found = marked(storage)
    # A mark and temporary marks do not count as content: a concurrent or crashed bootstrap may have written them.
    if found is None and any(file.path != MARK and not UNFINISHED.fullmatch(file.path) for file in storage.list("")):
        made = look(store, paths.CLUSTER)
        if made is None:
            raise in_use
        return made  # a concurrent bootstrap has finished, and files were written to the root since
    if found in (None, identity):
        _mark(storage, Mark(cluster=identity, place=place_of(service, storage).in_mark()))
    if marked(storage) != identity:  # a concurrent bootstrap may have overwritten the mark on an object store
        raise in_use
    where = ledger_root.recorded(storage, service)
    record = ClusterRecord(id=identity, ledgers=where, created_at_ms=time_ms(store), settings=settings)
    try:
        return store.put(paths.CLUSTER, record.to_bytes(), expect=ABSENT)
    except (BadVersion, UnknownOutcome):
        made = look(store, paths.CLUSTER)
        if made is None:
            raise
        return made


def _identity(store: MetadataStore) -> str:
    """Return the cluster id of this store, created if missing. All concurrent bootstraps get the same id."""
    new = Founding(id=uuid.uuid4().hex)
    try:
        return Founding.of(store.put(paths.FOUNDING, new.to_bytes(), expect=ABSENT)).id
    except (BadVersion, UnknownOutcome):
        found = look(store, paths.FOUNDING)
        if found is None:
            raise
        return Founding.of(found).id


def _mark(storage: LedgerStorage, mark: Mark) -> None:
    """Publish the mark, unless a concurrent or crashed bootstrap has published it. The mark is durable when this function returns,
    and only then does the caller write the cluster record.
    """
    try:
        storage.publish(MARK, mark.to_bytes())
    except StorageError:
        if storage.info(MARK) is None:
            raise
