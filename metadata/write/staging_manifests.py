"""Staging manifests: what each Spark write of one transaction left, under the transaction's token (protocol.md sections 1, 2, 7).

A transaction of several writes opens nothing until its end. Until then it is some small files in the folder `staging`, which the
machines of Spark's driver reach like the parts; each is published once and never changed:

    <token>.opened               the driver: writes may come
    <token>.<write>.begun        a write was planned: its topic, and how many had begun before it
    <token>.<write>.manifest     what it staged; it counts
    <token>.<write>.withdrawn    Spark gave it up: what it left does not count
    <token>.persistent           a write to a persistent:// topic has begun: no other may go to a topic://
    <token>.closed               the driver is at its end: no more writes
    <token>.ended                it is decided, or given up: nothing here protects a file any more

A write first says that it begins and then looks for `closed`, the driver first closes and then lists. So a write that the driver
does not see sees that it came too late, and nobody's rows are left out without a word. Only the orphan sweep deletes these files
(`metadata.maintenance.orphans`), all of a token's once it has ended, and any at the orphan age.
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
    """What one write staged.

    write      its id, unique
    order      how many writes of its transaction had begun before it: of two that follow each other the second has the higher one
    topic      full name
    types      its columns with the types that the topic keeps, as Spark's JSON
    key        the column that its rows were routed by; None: without a key
    staged_ms  store time before its first part was written
    parts      (segment by full name, part) in the order in which they are to be registered
    query      the streaming query in whose `foreachBatch` it was written; None: in none
    execution  the number of the SQL execution of its driver that it was; None: nobody knows, or another process did it
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

    def checked(self) -> StagingManifest:
        """Itself. Raises ValueError for fields of other types."""
        texts = [self.write, self.topic, self.types, *(text for text in (self.key, self.query) if text is not None)]
        numbers = [self.order, self.staged_ms, *([] if self.execution is None else [self.execution])]
        if any(type(one) is not str for one in texts) or any(type(one) is not int for one in numbers):
            raise ValueError("a field has another type")
        return self

    def to_bytes(self) -> bytes:
        body = asdict(self)
        return json.dumps({"crc": _crc(body), **body}).encode()

    @classmethod
    def of(cls, path: str, data: bytes) -> StagingManifest:
        """Raises CorruptRecord for anything that was not written so."""
        try:
            body = read_json(data)
            if body.pop("crc") != _crc(body):
                raise ValueError("its checksum is another")
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
        advice="Nothing of its transaction was committed by it: run the transaction again.",
    )


@dataclass(frozen=True)
class StagingArea:
    """The manifests of one transaction, for its driver and for its writes. All methods raise StorageError."""

    storage: LedgerStorage
    token: str

    def _path(self, name: str) -> str:
        return f"{FOLDER}/{self.token}{name}"

    def files(self) -> list[str]:
        """The paths of its files."""
        return [file.path for file in self.storage.list(FOLDER) if token_of(file.path) == self.token]

    # --- the driver -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Let writes come."""
        self._once(OPENED, {})

    def close(self) -> None:
        """Let no more writes come. Idempotent."""
        self._once(CLOSED, {})

    def end(self) -> None:
        """Say that nothing here is needed any more. Idempotent."""
        self._once(ENDED, {})

    def collect(self) -> list[StagingManifest]:
        """What counts, in the order of the writes. Raises TxnConflict if a write began and is not done; CorruptRecord."""
        paths = [self._path(f".{write}{MANIFEST}") for write in counted(self.files())]
        found = [StagingManifest.of(path, self.storage.read(path)) for path in paths]
        return sorted(found, key=lambda manifest: (manifest.order, manifest.write))

    def begun(self) -> int:
        """How many writes have begun."""
        return sum(path.endswith(BEGUN) for path in self.files())

    # --- a write ----------------------------------------------------------------------------------------------------

    def begin(self, write: str, topic: str) -> int:
        """A write begins: its order. Raises TxnConflict if the transaction is not there, or at its end; OptionError if it has a
        write to the other kind of topics.
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
                f"The transaction {self.token} has ended: a write to {topic} came too late for it.",
                advice="Finish every write, those of other threads too, before the `with` block ends.",
            )
        return order

    def _refuse_both_kinds(self, write: str, topic: str) -> None:
        """One transaction never spans both. Each write says what it is, then looks for others: of two, one sees the other."""
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
        """A write is done. What a second run of it leaves does not count: the first manifest stays."""
        path = self._path(f".{manifest.write}{MANIFEST}")
        if not self._published(path, manifest.to_bytes()):
            first = StagingManifest.of(path, self.storage.read(path))
            if first == manifest:
                return  # the reply to this very call was lost
            log.warning("write %s to %s ran twice: its first run counts, parts=%s", first.write, first.topic, len(first.parts))

    def withdraw(self, write: str) -> None:
        """Spark gave the write up. Idempotent."""
        self._once(f".{write}{WITHDRAWN}", {})

    # --- files ------------------------------------------------------------------------------------------------------

    def _once(self, name: str, body: Mapping[str, object]) -> None:
        self._published(self._path(name), json.dumps(body).encode())

    def _published(self, path: str, data: bytes) -> bool:
        """Whether it was not there before."""
        try:
            if self.storage.info(path) is None:
                self.storage.publish(path, data)
                return True
        except StorageError:
            if self.storage.info(path) is None:
                raise
        return False


def counted(paths: Iterable[str]) -> list[str]:
    """The writes that count, by the paths of a transaction's files. PURE.

    Raises TxnConflict if one has begun that neither left a manifest nor was given up.
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
            "broken off, run the transaction again.",
        )
    return sorted(left - withdrawn)


# --- the orphan sweep ------------------------------------------------------------------------------------------------


def token_of(path: str) -> str | None:
    """Whose staging file it is; None: it is none, or not published yet."""
    folder, _, name = path.partition("/")
    return name.partition(".")[0] or None if folder == FOLDER else None


def ended(paths: Iterable[str]) -> frozenset[str]:
    """The tokens whose transactions have ended, by the paths of all files."""
    return frozenset(token for path in paths if path.endswith(ENDED) and (token := token_of(path)) is not None)


def protected(
    storage: LedgerStorage, now_ms: int, orphan_age_ms: int, over: Collection[str], files: Collection[str]
) -> Iterator[str]:
    """Paths that live manifests name: those younger than the orphan age, of transactions that have not ended (`over`). A damaged
    one does not say what it names: of all `files` every part.
    """
    for file in storage.list(FOLDER):
        if not file.path.endswith(MANIFEST) or token_of(file.path) in over or file.mtime_ms + orphan_age_ms < now_ms:
            continue
        try:
            manifest = StagingManifest.of(file.path, storage.read(file.path))
        except MissingFile:
            continue  # another sweep has deleted it since it was listed: it protects nothing any more
        except CorruptRecord as error:
            log.warning("%s No parts are deleted until it goes.", error.message)
            yield from (path for path in files if path.endswith(".parquet"))
        else:
            yield from (part.path for _, part in manifest.parts)
