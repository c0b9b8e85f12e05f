"""Staging manifests. Each lists the files that one Spark write staged for a transaction of several writes. A token identifies the
transaction (protocol.md sections 1, 2, 7).

A transaction of several writes stores no record until its end. Until then its state is a few small files in the folder `staging` of
the ledger root, where the processes of Spark can reach them. Each file is published once and never changed:

    <token>.opened               by the driver: writes are accepted
    <token>.<write>.begun        a write was planned. The file has its topic, and how many writes had begun before it
    <token>.<write>.manifest     the parts of a finished write
    <token>.<write>.withdrawn    Spark aborted the write: its parts do not count
    <token>.persistent           a write to a persistent:// topic has begun: from now on each write checks that no write to the
                                 other kind of topic has begun
    <token>.closed               by the driver: no more writes are accepted
    <token>.ended                the transaction is decided or abandoned: its files protect no parts any more

A write first publishes `begun` and then checks for `closed`. The driver first publishes `closed` and then lists the files. So a
write that the driver does not list finds `closed` and fails, and no rows are left out silently. A transaction deletes its files at
its end. The orphan sweep deletes the files that are left: all files of an ended token, and any file that reached the orphan age.
The code of both deletions is in `metadata.maintenance.orphans`.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ledgers.errors import MissingFile
from ledgers.json_text import read_json
from ledgers.model import Part, check
from ledgers.storage import LedgerStorage
from metadata.common.errors import CorruptRecord, OptionError, StorageError, TxnConflict
from metadata.records.names import is_persistent

log = logging.getLogger("txnsegment.staging")

FOLDER: Final = "staging"
OPENED: Final = ".opened"
CLOSED: Final = ".closed"
PERSISTENT: Final = ".persistent"
ENDED: Final = ".ended"
BEGUN: Final = ".begun"
MANIFEST: Final = ".manifest"
WITHDRAWN: Final = ".withdrawn"


@dataclass(frozen=True)
class StagingManifest:
    """The result of one finished write.

    write      its id, unique
    order      how many writes of the transaction had begun before this one. A later write has a higher order
    topic      full name of the topic
    types      the columns of the write, with the types that they have in the topic, as Spark's JSON
    key        the column that routed the rows; None: the rows were routed without a key
    staged_ms  store time before the first part of the write was written
    parts      (segment by full name, part) in the order of registration
    query      the streaming query whose `foreachBatch` made the write; None: outside of `foreachBatch`
    grows      whether the commit may add columns to the topic and widen its types for these rows
    execution  the number of the write's SQL execution in the driver's Spark; None: the tasks did not report it
    """

    write: str
    order: int
    topic: str
    types: str
    key: str | None
    staged_ms: int
    parts: tuple[tuple[str, Part], ...]
    query: str | None = None
    execution: int | None = None
    grows: bool = False

    def checked(self) -> StagingManifest:
        """Return this manifest. Raises ValueError for a field of a wrong type."""
        texts = [self.write, self.topic, self.types, *(text for text in (self.key, self.query) if text is not None)]
        numbers = [self.order, self.staged_ms, *([] if self.execution is None else [self.execution])]
        if any(type(one) is not str for one in texts) or any(type(one) is not int for one in numbers):
            raise ValueError("a field has a wrong type")
        if type(self.grows) is not bool:
            raise ValueError("grows is not a boolean")
        return self

    def to_bytes(self) -> bytes:
        body = asdict(self)
        for _, part in body["parts"]:
            if part["stats"] is None:
                del part["stats"]
        return json.dumps({"crc": _crc(body), **body}).encode()

    @classmethod
    def of(cls, path: str, data: bytes) -> StagingManifest:
        """Parse a manifest. Raises CorruptRecord for bytes that `to_bytes` did not write."""
        try:
            body = read_json(data)
            if body.pop("crc") != _crc(body):
                raise ValueError("its checksum does not match")
            body["parts"] = tuple((str(segment), _part(part)) for segment, part in body["parts"])
            return cls(**body).checked()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, str(error)) from error


def _crc(body: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _part(found: Mapping[str, Any]) -> Part:
    part = Part(**{**found, "entries": tuple(found["entries"])})
    check(part)
    return part


def _damaged(path: str, problem: str) -> CorruptRecord:
    return CorruptRecord(
        f"The staging manifest {path} is damaged: {problem}.",
        advice="Its transaction was not committed: run the transaction again.",
    )


@dataclass(frozen=True)
class StagingArea:
    """The staging files of one transaction. Its driver and its writes use them. All methods raise StorageError."""

    storage: LedgerStorage
    token: str

    def _path(self, name: str) -> str:
        return f"{FOLDER}/{self.token}{name}"

    def files(self) -> list[str]:
        """Return the paths of the transaction's staging files."""
        return [file.path for file in self.storage.list(FOLDER) if token_of(file.path) == self.token]

    # --- the driver -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Let the transaction accept writes."""
        self._once(OPENED, {})

    def close(self) -> None:
        """Let the transaction refuse further writes. Idempotent."""
        self._once(CLOSED, {})

    def end(self) -> None:
        """Mark the transaction as ended, so that its staging files may be deleted. Idempotent."""
        self._once(ENDED, {})

    def collect(self) -> list[StagingManifest]:
        """Return the manifests of the writes that are finished and not withdrawn, in the order of the writes. Raises TxnConflict if
        a write has begun and is neither finished nor withdrawn. Raises CorruptRecord for a damaged manifest.
        """
        paths = [self._path(f".{write}{MANIFEST}") for write in counted(self.files())]
        found = [StagingManifest.of(path, self.storage.read(path)) for path in paths]
        return sorted(found, key=lambda manifest: (manifest.order, manifest.write))

    def begun(self) -> int:
        """Return how many writes of the transaction have begun."""
        return sum(path.endswith(BEGUN) for path in self.files())

    # --- a write ----------------------------------------------------------------------------------------------------

    def begin(self, write: str, topic: str) -> int:
        """Begin a write and return its order. Raises TxnConflict if the transaction does not exist or is closed. Raises OptionError
        if the transaction has writes to both topic:// and persistent://.
        """
        if self.storage.info(self._path(OPENED)) is None:
            raise TxnConflict(
                f"There is no transaction {self.token} for a write to {topic} in {self.storage.uri}.",
                advice="Write inside its `with` block, in the cluster that began it, with its options: .options(**txn.options).",
            )
        order = self.begun()
        self._once(f".{write}{BEGUN}", {"topic": topic, "order": order})
        self._refuse_both_kinds(write, topic)
        if self.storage.info(self._path(CLOSED)) is not None:
            self.withdraw(write)
            raise TxnConflict(
                f"The transaction {self.token} has ended, so it takes no write to {topic}.",
                advice="Finish every write, those of other threads too, before the `with` block ends.",
            )
        return order

    def _refuse_both_kinds(self, write: str, topic: str) -> None:
        """Raise OptionError if the transaction has writes to both topic:// and persistent://. Each write publishes its own kind
        before it checks for the other kind. So of two concurrent writes of different kinds at least one is refused.
        """
        if is_persistent(topic):
            self._once(PERSISTENT, {"topic": topic})
        elif self.storage.info(self._path(PERSISTENT)) is None:
            return
        files = self.files()
        withdrawn = {path.removesuffix(WITHDRAWN) for path in files if path.endswith(WITHDRAWN)}
        begun = [path for path in files if path.endswith(BEGUN) and path.removesuffix(BEGUN) not in withdrawn]
        if any(is_persistent(self._topic_of(path)) is not is_persistent(topic) for path in begun):
            self.withdraw(write)
            raise OptionError(
                f"A write to {topic} is part of a transaction that writes to the other kind of topics, too: one transaction never "
                "spans both topic:// and persistent://.",
                advice="Nothing of this write was written. Use two transactions, or migrate the persistent topics "
                "(txnsegment topics migrate).",
            )

    def _topic_of(self, path: str) -> str:
        try:
            return str(read_json(self.storage.read(path))["topic"])
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, str(error)) from error

    def leave(self, manifest: StagingManifest) -> None:
        """Publish the manifest of a finished write. If the write ran twice, the first manifest counts."""
        path = self._path(f".{manifest.write}{MANIFEST}")
        if not self._published(path, manifest.to_bytes()):
            first = StagingManifest.of(path, self.storage.read(path))
            if first == manifest:
                return  # the reply to this publish was lost
            log.warning("write %s to %s ran twice: its first run counts, parts=%s", first.write, first.topic, len(first.parts))

    def withdraw(self, write: str) -> None:
        """Mark a write that Spark aborted, so that it does not count. Idempotent."""
        self._once(f".{write}{WITHDRAWN}", {})

    # --- files ------------------------------------------------------------------------------------------------------

    def _once(self, name: str, body: Mapping[str, object]) -> None:
        self._published(self._path(name), json.dumps(body).encode())

    def _published(self, path: str, data: bytes) -> bool:
        """Publish the file unless it exists. Return whether this call published it."""
        try:
            if self.storage.info(path) is None:
                self.storage.publish(path, data)
                return True
        except StorageError:
            if self.storage.info(path) is None:
                raise
        return False


def counted(paths: Iterable[str]) -> list[str]:
    """Return the ids of the writes that count: those that have a manifest and are not withdrawn. `paths`: the transaction's staging
    files.

    Raises TxnConflict if a write has begun and has neither finished nor been withdrawn.
    """
    by_kind: dict[str, set[str]] = {BEGUN: set(), MANIFEST: set(), WITHDRAWN: set()}
    for path in paths:
        name, dot, kind = path.rpartition(".")
        if dot + kind in by_kind:
            by_kind[dot + kind].add(name.rpartition(".")[2])
    begun, left, withdrawn = by_kind.values()
    running = begun - left - withdrawn
    if running:
        raise TxnConflict(
            f"{len(running)} of this transaction's {len(begun)} writes have begun and not ended.",
            advice="Nothing was committed. Wait for every write, those of other threads too, before the block ends; if one was "
            "interrupted, run the transaction again.",
        )
    return sorted(left - withdrawn)


# --- the orphan sweep ------------------------------------------------------------------------------------------------


def token_of(path: str) -> str | None:
    """Return the token in the path of a staging file. Return None for another path, and for a file that is not published yet."""
    folder, _, name = path.partition("/")
    return name.partition(".")[0] or None if folder == FOLDER else None


def ended(paths: Iterable[str]) -> frozenset[str]:
    """Return the tokens of the transactions that have ended. `paths`: all staging files."""
    return frozenset(token for path in paths if path.endswith(ENDED) and (token := token_of(path)) is not None)


def protected(
    storage: LedgerStorage, now_ms: int, orphan_age_ms: int, over: Collection[str], files: Collection[str]
) -> Iterator[str]:
    """Yield the paths of the parts that live manifests name. A manifest is live if it is younger than the orphan age and its token
    is not in `over`, the tokens that have ended. A damaged manifest protects every part in `files`, as its own parts are unknown.
    """
    for file in storage.list(FOLDER):
        if not file.path.endswith(MANIFEST) or token_of(file.path) in over or file.mtime_ms + orphan_age_ms < now_ms:
            continue
        try:
            manifest = StagingManifest.of(file.path, storage.read(file.path))
        except MissingFile:
            continue  # another sweep has just deleted the manifest, so it protects no part
        except CorruptRecord as error:
            log.warning("%s No parts are deleted until it goes.", error.message)
            yield from (path for path in files if path.endswith(".parquet"))
        else:
            yield from (part.path for _, part in manifest.parts)
