"""Ownership of a ledger root: the mark `cluster.json` in it (protocol.md section 4, "The ledger root").

The mark names the cluster and the store that owns the root. Several stores may have a record of the cluster, for example copies.
The mark names the owner by a nonce, which is also in the cluster record of that store, and by the place of the store. A copy of a
store has the same nonce, but another place. Only the store that owns the root can be opened, and only its processes delete files.
They read the mark again right before each batch of deletes.

A take-over has three steps: (1) the mark gets a new nonce and the new place, so that the previous owner is refused from then on;
(2) wait until no sweep is deleting; (3) if the mark is unchanged, write the nonce into the cluster record. Until (3) no store owns
the root. After a crash between two steps the same command completes the take-over.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from ledgers.errors import MissingFile, StorageError
from ledgers.storage import LedgerStorage
from metadata.cluster.places import DATABASE, Place, lies_in, place_of, real_root, same_place
from metadata.common.clock import Clock
from metadata.common.errors import BadVersion, ConfigurationError, CorruptRecord, TxnSegmentError, UnknownOutcome
from metadata.common.service import ServiceUrl
from metadata.records import paths
from metadata.records.cluster_records import FORMAT_VERSION, ClusterRecord
from metadata.records.json_records import JsonRecord
from metadata.store import open_store
from metadata.store.contract import MetadataStore, Record, look

log = logging.getLogger(__name__)

MARK: Final = "cluster.json"
"""The mark's file in the ledger root."""
UNFINISHED: Final = re.compile(rf"\.{re.escape(MARK)}(\.[^/]+)?\.tmp")
"""Temporary files of a process that crashed while it wrote a mark."""
DELETING: Final = "sweep/deleting"
"""Path prefix of note files. A sweep keeps such a file in the root while it deletes other files."""
OWNS: Final = "owns it"
HANDOVER_SECONDS: Final = 30.0
"""Time in seconds for which a take-over or restore waits for sweeps that delete files. A sweep that takes longer counts as crashed.
"""


class Mark(JsonRecord):
    """The mark of a ledger root.

    `cluster`: the cluster id. `was`: the ids of the clusters from whose backups this cluster was restored. `owner`: the nonce of
    the owning store's cluster record (None: no take-over yet). `place`: the owning store's place (None: an older version
    of txnsegment wrote the mark).
    """

    cluster: str
    was: tuple[str, ...] | None = None
    owner: str | None = None
    place: Place | None = None


def read_mark(storage: LedgerStorage) -> Mark | None:
    """Return the mark of a root, or None if the root has none. Raises ConfigurationError for a damaged mark."""
    try:
        return Mark.from_bytes(storage.read(MARK))
    except MissingFile:
        return None
    except CorruptRecord as error:
        raise ConfigurationError(f"{storage.place(MARK)} is damaged: {error.message}", advice="Restore it from a copy.") from error


def marked(storage: LedgerStorage) -> str | None:
    """Return the id of the cluster that the root's mark names as the owner; None without a mark. Raises ConfigurationError if the
    mark is damaged.
    """
    return next(iter(heirs(storage)), None)


def heirs(storage: LedgerStorage) -> list[str]:
    """Return the id of the cluster that owns the root, then the ids of the clusters from whose backups it was restored. The list is
    empty if the root has no mark. Raises ConfigurationError if the mark is damaged.
    """
    mark = read_mark(storage)
    return [] if mark is None else [mark.cluster, *(mark.was or ())]


# --- place of the root -----------------------------------------------------------------------------------------------


def recorded(storage: LedgerStorage, service: ServiceUrl) -> str:
    """Return the text by which the record of a new cluster names its ledger root. If the root lies in the store's folder, the text
    is a path relative to that folder, so that a copy of the folder uses its own ledgers. Otherwise the text is the root's URI.
    """
    if service.scheme == "file" and storage.uri.startswith(f"{service.text}/"):
        return storage.uri.removeprefix(f"{service.text}/")
    return storage.uri


def located(known: ClusterRecord, service: ServiceUrl) -> LedgerStorage:
    """Return the ledger root of a cluster. Raises ConfigurationError.

    Older versions of txnsegment always recorded a URI. If the URI is outside the store's folder, but the store's folder has ledgers
    with the cluster's mark, then the folder was copied or moved. In this case the ledgers in the folder are the root. There is one
    exception: if the mark at the recorded URI names this store as the owner, the recorded URI is the root.
    """
    if "://" not in known.ledgers and not known.ledgers.startswith("/"):
        if service.scheme != "file":
            raise ConfigurationError(
                f"The cluster {service} has its ledgers in the folder {known.ledgers!r} of its store, but the store has no folder.",
                advice="Its record was copied from another store. Make a backup there and restore it here.",
            )
        if any(part in ("", ".", "..") for part in unquote(known.ledgers).split("/")):
            raise ConfigurationError(
                f"The cluster {service} has its ledgers in {known.ledgers!r}, which is not a folder within its store's folder.",
                advice="Its record is damaged: restore it from a backup.",
            )
        return LedgerStorage(f"{service.text}/{known.ledgers}")
    there = LedgerStorage(known.ledgers)
    if service.scheme != "file" or there.folder is None or lies_in(os.path.realpath(there.folder), os.path.realpath(service.path)):
        return there
    own = LedgerStorage(f"{service.text}/ledgers")
    if marked(own) != known.id:
        return there
    mark = read_mark(there)
    if mark is None or mark.cluster != known.id or mark.place is None or mark.owner != known.owner:
        return own
    return there if same_place(mark.place, place_of(service, there)) else own


# --- ownership -------------------------------------------------------------------------------------------------------


def own(storage: LedgerStorage, known: ClusterRecord, service: ServiceUrl, store: MetadataStore) -> Place:
    """Check, when the store is opened, that it owns the root. Return the place of the store.

    The check is needed, because two clusters on one root, or two copies of one cluster, would delete each other's parts. A root
    without a mark may be the empty mount point of a volume: rows written there are hidden once the volume is mounted. If the mark
    has no place (an older version of txnsegment wrote it), or the place at which the store was before it was moved, this function
    writes the current place into the mark. Raises ConfigurationError (the root has no mark, or another owner), StorageError (there
    is no root).
    """
    mark, ours = _checked(storage, known, service, store)
    if mark.place is None or (same_place(mark.place, ours) and not mark.place.equals(ours.in_mark())):
        if mark.place is None:
            _check_not_next_to_its_store(storage, known, service, ours)
        try:
            storage.replace(MARK, mark.model_copy(update={"place": ours.in_mark()}).to_bytes())
        except StorageError as error:
            # Perhaps this user may only read the root. The cluster can be opened nevertheless. If the mark still has no place,
            # `check` refuses each delete.
            log.warning("The mark of %s could not be given the place of its store: %s", storage.uri, error)
        else:
            check(storage, known, service, store, ours)
    return ours


def check(storage: LedgerStorage, known: ClusterRecord, service: ServiceUrl, store: MetadataStore, opened: Place) -> None:
    """Check before a batch of deletes that the store still owns the root. `opened`: the place of the store when the cluster was
    opened.

    Raises ConfigurationError if the store does not own the root, or if the store's folder was moved or replaced since it was
    opened.
    """
    mark, ours = _checked(storage, known, service, store)
    if mark.place is None:
        raise ConfigurationError(
            f"The mark {MARK} of the ledger root {storage.uri} does not name the place of the owning store.",
            advice=f"Give this user the right to write there and open {service} again, or run: {command(service)}",
        )
    if ours.path is not None and not ours.is_file(opened):
        raise ConfigurationError(
            f"The metadata store {opened.path} was replaced by another file while it was open.",
            advice=f"Stop this process and open {service} again. Stop all processes before a cluster is moved.",
        )


def _checked(storage: LedgerStorage, known: ClusterRecord, service: ServiceUrl, store: MetadataStore) -> tuple[Mark, Place]:
    mark = read_mark(storage)
    if mark is None:
        next(iter(storage.list("")), None)  # raises an error of its own if the root is missing
        raise ConfigurationError(
            f"The ledger root {storage.uri} of the cluster {service} has no {MARK}, so it is not the root of that cluster.",
            advice="Check that its volume is mounted and that every machine sees the same folder. "
            f"If the root was restored without that file, run: {command(service)}",
        )
    if mark.cluster != known.id:
        raise _of_another(storage, service)
    ours = place_of(service, storage)
    if mark.owner != known.owner:
        raise _taken(storage, service, mark, ours, "has taken it over")
    if mark.place is not None and not _is_here(mark.place, ours, store):
        raise _taken(storage, service, mark, ours, OWNS)
    return mark, ours


def _is_here(marked: Place, ours: Place, store: MetadataStore) -> bool:
    """Return whether the mark names this store. If the addresses of the servers differ, the store is asked whether the servers in
    the mark serve it, because the same servers can have other addresses on the machine that wrote the mark.
    """
    if same_place(marked, ours):
        return True
    if marked.hosts is None or ours.hosts is None or (marked.chroot or "") != (ours.chroot or ""):
        return False
    return store.is_served_by(marked.hosts)


def _of_another(storage: LedgerStorage, service: ServiceUrl) -> ConfigurationError:
    return ConfigurationError(
        f"The ledger root {storage.uri} belongs to another cluster than {service}.",
        advice="Check the mounted volume and the folder's name. Each cluster needs a ledger root of its own. (After a "
        "restore the restored cluster owns its root, and the old cluster can no longer be used.)",
    )


def _taken(storage: LedgerStorage, service: ServiceUrl, mark: Mark, ours: Place, what: str) -> ConfigurationError:
    other_names = ""
    if what == OWNS and mark.place is not None and mark.place.hosts and ours.hosts:
        other_names = (
            f"If these are other addresses of the same servers: this machine must reach {','.join(mark.place.hosts)}, without TLS "
            "or with this machine's TLS settings; or name one of them in the service URL, too. "
        )
    theirs = "another store" if mark.place is None else f"the store at {mark.place.shown(storage.uri)}"
    return ConfigurationError(
        f"The ledger root {storage.uri} does not belong to the store {service} at {ours.shown(storage.uri)}: "
        f"{theirs} {what}. One of the two is a copy of the other, or the store was moved.",
        advice=f"{other_names}Two stores on one root would delete each other's rows. If this store is the one to use from now on, "
        f"stop all processes of the other (it can no longer be used then), and run: {command(service)}. "
        "To use both, restore a backup over a copy of the ledgers instead.",
    )


def command(service: ServiceUrl) -> str:
    """Return the command that makes a store the owner of its root."""
    return f"txnsegment init {service} --take-over"


def _check_not_next_to_its_store(storage: LedgerStorage, known: ClusterRecord, service: ServiceUrl, ours: Place) -> None:
    """Raise ConfigurationError if the root lies in the folder of another store of the cluster. The caller has found
    that the mark has no place, so the mark does not say which store owns the root. Then the store whose folder has the root counts
    as the owner.
    """
    root = real_root(storage)
    if root is None or ours.within is not None:
        return
    folder = Path(root).parent
    if not (folder / DATABASE).is_file() or os.path.realpath(folder / DATABASE) == ours.path:
        return
    try:
        with open_store(f"file://{_quoted(folder)}", create=False) as other:
            record = look(other, paths.CLUSTER)
            same = record is not None and ClusterRecord.of(record).id == known.id
    except TxnSegmentError as error:
        log.warning("The store in %s, beside the ledger root %s, cannot be read: %s", folder, storage.uri, error)
        same = True
    if same:
        raise _taken(storage, service, Mark(cluster=known.id, place=Place(path=str(folder / DATABASE))), ours, OWNS)


def _quoted(folder: Path) -> str:
    return folder.as_uri().removeprefix("file://")


# --- take-over -------------------------------------------------------------------------------------------------------


def take_over(store: MetadataStore, record: Record, storage: LedgerStorage, service: ServiceUrl, clock: Clock) -> bool:
    """Make this store the owner of its root. Return False if it is the owner already. Raises ConfigurationError if the root is
    empty, belongs to another cluster, or is taken over by another process at the same time.
    """
    known = ClusterRecord.of(record)
    mark, ours = read_mark(storage), place_of(service, storage)
    if mark is None and next(iter(storage.list("")), None) is None:
        raise ConfigurationError(
            f"The ledger root {storage.uri} is empty, so it is not the root that {service} wrote to.",
            advice="Mount its volume, or copy the files of the root there.",
        )
    if mark is not None and mark.cluster != known.id:
        raise _of_another(storage, service)
    if mark is not None and mark.owner == known.owner and mark.place is not None and _is_here(mark.place, ours, store):
        return False
    nonce = uuid.uuid4().hex
    was = None if mark is None else mark.was
    storage.replace(MARK, Mark(cluster=known.id, was=was, owner=nonce, place=ours.in_mark()).to_bytes())
    wait_for_deletes(storage, clock)
    found = read_mark(storage)
    meanwhile = ConfigurationError(
        f"Another process has taken over the ledger root {storage.uri} at the same time.",
        advice=f"Decide which store is to own it, and run there: {command(service)}",
    )
    if found is None or found.owner != nonce:
        raise meanwhile
    taken = known.model_copy(update={"owner": nonce, "format_version": FORMAT_VERSION})
    try:
        store.put(record.key, taken.to_bytes(), expect=record)
    except (BadVersion, UnknownOutcome) as error:
        now = look(store, record.key)
        if now is None or ClusterRecord.of(now).owner != nonce:
            raise meanwhile from error
    return True


def wait_for_deletes(storage: LedgerStorage, clock: Clock) -> None:
    """Wait until no earlier sweep deletes files. The caller has already changed the mark. A sweep publishes its file
    `sweep/deleting-..` before it reads the mark. So a sweep whose file is not listed here reads the new mark, and is refused.
    A sweep whose file still exists after HANDOVER_SECONDS counts as crashed.
    """
    deadline = clock.monotonic() + HANDOVER_SECONDS
    while notes := [file.path for file in storage.list("sweep") if file.path.startswith(f"{DELETING}-")]:
        if clock.monotonic() >= deadline:
            log.warning(
                "A sweep of %s has not finished deleting within %.0f s and counts as crashed.", storage.uri, HANDOVER_SECONDS
            )
            for note in notes:
                storage.delete(note)
            return
        clock.sleep(0.05)


# --- roots within roots ----------------------------------------------------------------------------------------------


def check_not_nested(storage: LedgerStorage, url: str) -> None:
    """Raise ConfigurationError if a root lies in the root of another cluster, or contains one. Otherwise a sweep of the outer root
    would list, and might delete, the files of the inner root.
    """
    for uri in _above(storage):
        try:
            outer = LedgerStorage(uri).info(MARK)
        except StorageError as error:
            log.warning("Could not check whether %s is the ledger root of another cluster: %s", uri, error)
            continue  # a user may have access to one prefix only
        if outer is not None:
            raise ConfigurationError(
                f"The ledger root {storage.uri} of the new cluster {url} would lie in the ledger root {uri} of another one.",
                advice="Give a folder or prefix of its own: the orphan sweep of the outer root covers everything in it.",
            )
    for file in storage.list(""):
        if file.path.endswith(f"/{MARK}"):
            raise ConfigurationError(
                f"In the ledger root {storage.uri} of the new cluster {url} lies the ledger root of another one: "
                f"{file.path.removesuffix(f'/{MARK}')}.",
                advice="Give a folder or prefix of its own: the orphan sweep of the outer root covers everything in it.",
            )


def _above(storage: LedgerStorage) -> Iterator[str]:
    """Yield the URIs of the folders or prefixes above a root, by its given path and by its real path."""
    if storage.folder is not None:
        lexical = Path(os.path.normpath(storage.folder)).parents
        for folder in dict.fromkeys((*lexical, *Path(os.path.realpath(storage.folder)).parents)):
            yield str(folder)
        return
    split = urlsplit(storage.uri)
    path = split.path.rstrip("/")
    while path:
        path = path.rpartition("/")[0]
        yield urlunsplit(split._replace(path=path))
