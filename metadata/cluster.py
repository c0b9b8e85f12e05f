"""One deployment: its metadata store, its ledger storage, its settings. Everything above is handed one of these."""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ledgers.errors import MissingFile
from ledgers.storage import LedgerStorage
from metadata import paths
from metadata.clock import Clock, SystemClock
from metadata.cluster_records import FORMAT_VERSION, ClusterRecord, Founding, Lost, LostNumbers, Restoring, Settings
from metadata.errors import (
    BadVersion,
    ClusterFormatError,
    ConfigurationError,
    OffsetOutOfRange,
    RestoreRefused,
    StorageError,
    UnknownOutcome,
)
from metadata.service import ServiceUrl, embedded_ledgers, parse_service_url
from metadata.service import service_url as given_or_environment
from metadata.store import open_store
from metadata.store.contract import ABSENT, BUSY_SECONDS, MetadataStore, Record, decide, look, time_ms

MARK = "cluster.json"
"""In the ledger root: whose it is."""
_UNFINISHED = f".{MARK}.tmp"


@dataclass
class Cluster:
    """`unique` gives names that nobody else gives; `owner` says who we are in headers, for people to read.

    `lock` makes the locks that are held over several steps of the store; a process whose threads are not the system's has its own.
    `id`: whose mark the ledger root must have; None: nobody's, a world that a test has made. `restored`: what restores lost.
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

    def close(self) -> None:
        self.store.close()

    def check_root(self) -> None:
        """Make sure that the ledger root is (still) ours: a restore elsewhere may have taken it over. Raises ConfigurationError."""
        if self.id is not None:
            own(self.storage, self.id, self.url)

    def check_not_lost(self, number: int) -> None:
        """Raises OffsetOutOfRange for a number of the log that a restore lost."""
        check_not_lost(self.restored, number, self.url)


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
            _found(store, service.text, ledgers, settings or Settings(), clock)
            record = _record(store, service.text)  # once more: a restore may have begun beside us
            assert record is not None
        known = read_cluster_record(record, service.text)
        if ledgers is not None and LedgerStorage(ledgers).uri != known.ledgers:
            raise ConfigurationError(
                f"The cluster {service} keeps its ledgers in {known.ledgers}, not in {ledgers}.",
                advice="Leave the ledgers out (the cluster remembers them), or use another chroot or folder.",
            )
        storage = LedgerStorage(known.ledgers)
        own(storage, known.id, service.text)
        return Cluster(service.text, store, storage, known.settings, clock, id=known.id, restored=known.restored or ())
    except BaseException:
        store.close()
        raise


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


def _found(store: MetadataStore, url: str, ledgers: str, settings: Settings, clock: Clock) -> Record:
    """Make the cluster's record; whoever comes second gets the first one's. Raises ConfigurationError for a root in use.

    First the id (in the store), then the mark with it (in the root), then the record. So a founding that stops anywhere is
    finished by the next try (a mark that is half written must be deleted before: `_mark` says so), a root is never taken over
    from another cluster, and once there is a record a root without a mark is not ours: nobody adopts the empty mount point of a
    volume that is missing.
    """
    storage = LedgerStorage(ledgers)
    storage.create()
    identity = _identity(store)
    in_use = ConfigurationError(
        f"The ledger root {storage.uri} is not empty, and {url} is a new cluster.",
        advice="Give an empty folder or prefix of its own: sweeping deletes old files that no cluster record names.",
    )
    if storage.info(MARK) is None:
        # (What a founder that died, or one beside us, left of its mark is nobody's data.)
        if any(file.path not in (MARK, _UNFINISHED) for file in storage.list("")):
            made = look(store, paths.CLUSTER)
            if made is None:
                raise in_use
            return made  # founded and written to meanwhile
        _mark(storage, identity, clock)
    if marked(storage) != identity:  # also where files can be overwritten, as on object stores: whose mark stayed?
        raise in_use
    record = ClusterRecord(id=identity, ledgers=storage.uri, created_at_ms=time_ms(store), settings=settings)
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


def _mark(storage: LedgerStorage, identity: str, clock: Clock) -> None:
    """Write the mark, or wait until a founder beside us has written his: of one who began so long ago nothing more will come."""
    deadline = clock.monotonic() + BUSY_SECONDS
    while True:
        try:
            storage.publish(MARK, json.dumps({"cluster": identity}).encode())
            return
        except StorageError as error:
            if storage.info(MARK) is not None:
                return
            if not isinstance(error.__cause__, FileExistsError):
                raise
            begun = storage.info(_UNFINISHED)
            given_up = begun is not None and clock.now_ms() - begun[1] >= 1_000 * BUSY_SECONDS
            if given_up or clock.monotonic() >= deadline:
                error.add_note(f"If nobody else is just making this cluster, delete {_UNFINISHED} in the ledger root.")
                raise
            clock.sleep(0.01)


def marked(storage: LedgerStorage) -> str | None:
    """Whose the root is by its mark; None: it has none. Raises ConfigurationError for a damaged one."""
    return next(iter(heirs(storage)), None)


def heirs(storage: LedgerStorage) -> list[str]:
    """Whose the root is by its mark, then whose it was before it was restored; empty: it has none. Raises ConfigurationError."""
    try:
        found = json.loads(storage.read(MARK))
        return [str(found["cluster"]), *map(str, found.get("was", ()))]
    except MissingFile:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{storage.uri}/{MARK} is damaged: {error}.", advice="Restore it from a copy.") from error


def own(storage: LedgerStorage, cluster_id: str, url: str) -> None:
    """Check that the ledger root has this cluster's mark: two clusters on one root would sweep each other's parts away, and
    rows written to the empty mount point of a volume are lost behind it.

    Raises ConfigurationError: the root has no mark, or another cluster's. StorageError: there is no root at all.
    """
    found = marked(storage)
    if found is None:
        next(iter(storage.list("")), None)  # a root that is missing is an error of its own
        raise ConfigurationError(
            f"The ledger root {storage.uri} of the cluster {url} has no {MARK}, so it is not the one that was written to.",
            advice="Is its volume mounted, does every machine see the same folder? If the root was restored without that file, "
            f'write it again: {{"cluster": "{cluster_id}"}}',
        )
    if found != cluster_id:
        raise ConfigurationError(
            f"The ledger root {storage.uri} belongs to another cluster than {url}.",
            advice="Is the right volume mounted, the right folder named? Each cluster needs a ledger root of its own. (Once a "
            "backup is restored, the restored cluster has its root; the old one can be used no more.)",
        )
