"""One deployment: its metadata store, its ledger storage, its settings. Everything above is handed one of these."""

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
    """`unique` gives names that nobody else gives; `owner` says who we are in headers, for people to read.

    `lock` makes the locks that are held over several steps of the store; a process whose threads are not the system's has its own.
    `id`: whose mark the ledger root must have; None: nobody's, a world that a test has made. `restored`: what restores lost.
    `place`: where the store was when it was opened.
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

    def close(self) -> None:
        self.store.close()

    def check_root(self) -> None:
        """Make sure, before files are deleted, that the ledger root is still ours. A restore elsewhere, or a copy of the store, may
        have taken it over, and the store may have become another cluster's. Raises ConfigurationError.
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
        """Raises OffsetOutOfRange for a number of the log that a restore lost."""
        check_not_lost(self.restored, number, self.url)

    def check_is_mine(self, cluster: str | None) -> None:
        """Raises OffsetOutOfRange for an offset of another cluster: its numbers name other rows. `cluster`: the id in it (None:
        an older version did not say). An offset of a cluster from whose backup this one was restored is good here, too.
        """
        before = [lost.was for lost in self.restored]
        if cluster is None or self.id is None or None in before or cluster in (self.id, *before):
            return
        raise OffsetOutOfRange(
            f"The offset is one of the cluster {cluster}, and {self.url} is the cluster {self.id}: it was made anew, restored "
            "another time, or is not the one that the checkpoint was made with.",
            advice="Name the service URL of that cluster, or use a new checkpoint location: what a number stands for there is "
            "another row here.",
        )

    def before_lost(self, number: int) -> int:
        """The place in the log that a number computed from what is there names, as a number that no restore lost."""
        return before_lost(self.restored, number)


def before_lost(restored: Iterable[LostNumbers], number: int) -> int:
    """The number itself, or of one that a restore lost the last one below it that it did not: there is nothing between them."""
    return next((lost.after for lost in restored if lost.after < number < lost.before), number)


def check_not_lost(restored: Iterable[LostNumbers], number: int, what: str) -> None:
    """Raises OffsetOutOfRange for a number of `what`'s log that a restore lost: rows up to it were read that are no longer here,
    and whoever wrote them may write them again, above.
    """
    for lost in restored:
        if lost.after < number < lost.before:
            raise OffsetOutOfRange(
                f"The offset {number} of {what} is from before it was restored, with what is up to {lost.after} alone.",
                advice=f"Rows above {lost.after} were read and are lost here; what their writers commit again comes at "
                f"{lost.before} and above. Use a new checkpoint: start after {lost.after} to get all that comes again.",
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

    An embedded cluster (`file:///path`) is made on first use; one on ZooKeeper must have been made with `ledgers` (a URI), by
    `txnsegment init` or here. Raises ConfigurationError (no such cluster, other ledgers than it has) and ClusterFormatError
    (made by a newer version).
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
            record = _record(store, service.text)  # once more: a restore may have begun beside us
            assert record is not None
            clock_looks.look(store, clock)  # from now on it is seen how much time has passed
        known = read_cluster_record(record, service.text)
        storage = ledger_root.located(known, service)
        if ledgers is not None and LedgerStorage(ledgers).uri != storage.uri:
            raise ConfigurationError(
                f"The cluster {service} keeps its ledgers in {storage.uri}, not in {LedgerStorage(ledgers).uri}.",
                advice="Leave the ledgers out (the cluster remembers them), or use another chroot or folder.",
            )
        place = ledger_root.own(storage, known, service, store)
        return Cluster(service.text, store, storage, known.settings, clock, id=known.id, restored=known.restored or (), place=place)
    except BaseException:
        store.close()
        raise


def take_over(service_url: str | None = None, *, clock: Clock | None = None) -> bool:
    """Make the store behind a service URL the owner of its ledger root, in place of the store that is it by the root's mark: after
    the store was moved or copied. The other one can be used no more. Running it again finishes what was begun. False: the store was
    the owner already. Raises ConfigurationError, StorageError, Unavailable.
    """
    service = resolve(service_url)
    clock = clock or SystemClock()
    with open_store(service.text, clock=clock, create=False) as store:
        record = _record(store, service.text)
        if record is None:
            raise ConfigurationError(f"There is no cluster at {service}.", advice="Look for the store that was copied or moved.")
        known = read_cluster_record(record, service.text)
        return ledger_root.take_over(store, record, ledger_root.located(known, service), service, clock)


def _record(store: MetadataStore, url: str) -> Record | None:
    """The cluster's record. Raises RestoreRefused while a restore into the store is not complete."""
    record, restoring = decide(store, lambda view: view.get_many([paths.CLUSTER, paths.RESTORING]))
    if restoring is not None:
        begun = Restoring.of(restoring)
        raise RestoreRefused(
            f"The store {url} holds half of a cluster: a restore that {begun.by} began was never finished.",
            advice=f"Run it again with the same file (SHA-256 {begun.backup[:12]}..): txnsegment restore FILE --service-url {url}",
        )
    return record


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


def _found(store: MetadataStore, service: ServiceUrl, ledgers: str, settings: Settings) -> Record:
    """Make the cluster's record; whoever comes second gets the first one's. Raises ConfigurationError for a root in use.

    First the id (in the store), then the mark with it (in the root), then the record. So a founding that stops anywhere is
    finished by the next try, a root is never taken over from another cluster, and once there is a record a root without a mark is
    not ours: nobody adopts the empty mount point of a volume that is missing.
    """
    storage = LedgerStorage(ledgers)
    storage.create()
    ledger_root.check_not_nested(storage, service.text)
    if (other := marked(storage)) is not None and look(store, paths.FOUNDING) is None:  # in this order: who founds marks last
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
    # (What a founder that died, or one beside us, left of its mark is nobody's data.)
    if found is None and any(file.path != MARK and not UNFINISHED.fullmatch(file.path) for file in storage.list("")):
        made = look(store, paths.CLUSTER)
        if made is None:
            raise in_use
        return made  # founded and written to meanwhile
    if found in (None, identity):
        _mark(storage, Mark(cluster=identity, place=place_of(service, storage).in_mark()))
    if marked(storage) != identity:  # also where files can be overwritten, as on object stores: whose mark stayed?
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
    """The id that the cluster of this store has or will have, the same for all who are founding it."""
    new = Founding(id=uuid.uuid4().hex)
    try:
        return Founding.of(store.put(paths.FOUNDING, new.to_bytes(), expect=ABSENT)).id
    except (BadVersion, UnknownOutcome):
        found = look(store, paths.FOUNDING)
        if found is None:
            raise
        return Founding.of(found).id


def _mark(storage: LedgerStorage, mark: Mark) -> None:
    """Write the mark, or find that a founder beside us, or one that died, has written it. Either way it is durable then: the record
    that comes next relies on it.
    """
    try:
        storage.publish(MARK, mark.to_bytes())
    except StorageError:
        if storage.info(MARK) is None:
            raise
