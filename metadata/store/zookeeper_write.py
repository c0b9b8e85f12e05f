"""Conversion of a write group into one ZooKeeper multi, and the handling of a failed multi.

A failed multi changes nothing. For some failures the caller is not responsible: a folder is missing, a sequence has a new era, or a
record has changed after the writer itself had read it. Then the writer removes the cause and sends the group again. A multi whose
reply is lost is never sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from metadata.common.errors import BadVersion, CorruptRecord, Unavailable, ValueTooLarge
from metadata.records.paths import Key
from metadata.store.contract import ABSENT, Append, Delete, IndexEntry, Put, Record, Write
from metadata.store.memory import lost_race
from metadata.store.zookeeper_eras import Eras
from metadata.store.zookeeper_paths import (
    ERA_SIZE,
    era_folder,
    era_record,
    from_data,
    index_znode,
    numbered_key,
    sequence_znode,
    to_data,
    znode,
)
from metadata.store.zookeeper_session import Session, get

MULTI_LIMIT = 1_000_000
"""Maximum size of one multi in bytes. Above 1,048,575 bytes (jute.maxbuffer) a server drops the connection without a reply."""
ATTEMPTS = 100


class _Again(Exception):
    """The cause of a failed multi was removed. The group is planned and sent again."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The content of a record's znode. `version` is ABSENT if there is no znode. `owner`: the session of an ephemeral znode."""

    record: Record | None
    version: int
    owner: int = 0
    is_folder: bool = False


@dataclass(slots=True)
class _Step:
    """One operation of the multi. `role` decides how a failure of the operation is handled. `about`: the path of the record or
    folder that the operation changes or checks.
    """

    add: Callable[[Any], None]
    role: str
    about: str
    znode: str
    size: int


@dataclass(slots=True)
class _Plan:
    """The operations of a multi. `results`: for each write the index of a step (-1: none), and a function that makes the write's
    record from the result of this step.
    """

    steps: list[_Step] = field(default_factory=list)
    results: list[tuple[int, Callable[[Any], Record | None]]] = field(default_factory=list)
    # the content of each record after the steps that are planned so far
    known: dict[str, Record | None] = field(default_factory=dict)

    def add(self, role: str, about: str, path: str, size: int, add: Callable[[Any], None]) -> None:
        self.steps.append(_Step(add, role, about, path, size + len(path) + 64))

    def fill(self, transaction: Any) -> None:
        for step in self.steps:
            step.add(transaction)

    def gives(self, record: Callable[[Any], Record | None]) -> None:
        """Call after a step is planned. When the multi has run, `record` gets the result of this step, and returns the record that
        the write returns (None: the record was deleted).
        """
        self.results.append((len(self.steps) - 1, record))


class Writer:
    """Sends the write groups of one store."""

    def __init__(self, session: Session, eras: Eras) -> None:
        self._session = session
        self._eras = eras

    def write(self, writes: Sequence[Write]) -> list[Record | None]:
        """Do `MetadataStore.write`. The call takes one round trip if four conditions hold: every put expects ABSENT, or expects a
        Record and is not ephemeral; every delete expects a Record; all folders exist; this process knows the open era of each
        sequence to which the group appends.
        """
        found: dict[str, _Found] = {}  # records that must be read before they can be written
        needed = [w.key for w in writes if isinstance(w, Put | Delete) and not _is_pinned(w)]
        for _ in range(ATTEMPTS):
            self._look(needed, found)
            plan = self._plan(writes, found)
            if sum(step.size for step in plan.steps) > MULTI_LIMIT:
                raise ValueTooLarge(
                    f"A group of {len(writes)} writes (the first: {plan.steps[0].about}) does not fit into one request"
                    f" ({MULTI_LIMIT} bytes); nothing was done.",
                    advice="Write smaller values or smaller groups.",
                )
            if not plan.steps:
                return [None] * len(writes)
            results = self._session.multi(plan.fill)
            try:
                self._check(plan, results, found, needed)
            except _Again:
                continue
            return [record(results[place]) if place >= 0 else record(None) for place, record in plan.results]
        raise Unavailable(
            f"{writes[0]} and {len(writes) - 1} more lost {ATTEMPTS} races in a row; nothing was done.", advice="Try again."
        )

    # --- looking ---

    def _look(self, keys: Sequence[Key], found: dict[str, _Found]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key.path not in found]
        if not missing:
            return
        requests = [get(self._session.root + znode(key.path)) for key in missing]
        outcomes = self._session.fresh(requests)
        for key, outcome in zip(missing, outcomes, strict=True):
            if isinstance(outcome, NoNodeError):
                found[key.path] = _Found(None, ABSENT)
                continue
            data, state = outcome
            record = to_record(key, data, state.version)
            if data and record is None:
                raise BadVersion(f"{key.path} exists under another partition key than {key.partition!r}.")
            found[key.path] = _Found(record, state.version, state.ephemeralOwner, state.numChildren > 0)

    # --- planning ---

    def _plan(self, writes: Sequence[Write], found: dict[str, _Found]) -> _Plan:
        plan = _Plan()
        moved: dict[str, tuple[int, int]] = {}  # eras that this group itself opens
        for write in writes:
            if isinstance(write, Append):
                self._plan_append(plan, write, moved)
            else:
                self._plan_write(plan, write, found.get(write.key.path))
        return plan

    def _plan_write(self, plan: _Plan, write: Put | Delete, at: _Found | None) -> None:
        path = write.key.path
        if path in plan.known:  # an earlier write of this group determines the record
            old = plan.known[path]
        elif isinstance(write.expect, Record):
            old = write.expect
        else:
            old = at.record if at else None
        expected = write.expect.version if isinstance(write.expect, Record) else write.expect
        if expected is not None and expected != (old.version if old else ABSENT):
            raise lost_race(path, expected, old.version if old else None)
        if isinstance(write, Delete):
            self._plan_delete(plan, path, old, at)
            plan.known[path] = None
        else:
            plan.known[path] = self._plan_put(plan, write, old, at)

    def _plan_delete(self, plan: _Plan, path: str, old: Record | None, at: _Found | None) -> None:
        if old is None:
            plan.results.append((-1, lambda _: None))
            return
        place, version = self._session.root + znode(path), old.version
        if at is not None and at.is_folder:  # records lie below this znode, so it remains as an empty folder
            plan.add("change", path, place, 0, lambda t: t.set_data(place, b"", version))
        else:
            plan.add("delete", path, place, 0, lambda t: t.delete(place, version))
        plan.gives(lambda _: None)
        self._plan_entries(plan, path, old.indexes, ())

    def _plan_put(self, plan: _Plan, put: Put, old: Record | None, at: _Found | None) -> Record:
        key, indexes = put.key, tuple(dict.fromkeys(put.indexes))
        data, place = to_data(put.value, indexes, key.partition), self._session.root + znode(key.path)
        if old is not None and at is not None and at.owner != (self._session.id if put.ephemeral else 0):
            # The owner of a znode cannot change, so the znode is deleted and created again. The versions of the record start again.
            gone = old.version
            plan.add("delete", key.path, place, 0, lambda t: t.delete(place, gone))
            self._plan_entries(plan, key.path, old.indexes, ())
            old, at = None, None
        old_indexes = old.indexes if old else ()
        version = ABSENT
        if old is not None:
            version = old.version
        elif at is not None and at.record is None:
            version = at.version  # the version of an empty folder at this path, if any
        if version != ABSENT:
            plan.add("change", key.path, place, len(data), lambda t: t.set_data(place, data, version))
            plan.gives(lambda stat: Record(key, put.value, stat.version, indexes))
            after = Record(key, put.value, version + 1, indexes)
        else:
            plan.add(
                "create", key.path, place, len(data), lambda t: t.create(place, data, self._session.acl, ephemeral=put.ephemeral)
            )
            after = Record(key, put.value, 0, indexes)
            plan.gives(lambda _: after)
        self._plan_entries(plan, key.path, old_indexes, indexes, put.ephemeral)
        return after

    def _plan_entries(
        self, plan: _Plan, path: str, old: Sequence[IndexEntry], new: Sequence[IndexEntry], ephemeral: bool = False
    ) -> None:
        for entry in old:
            if entry not in new:
                place = self._session.root + index_znode(entry, path)
                plan.add("no entry", path, place, 0, partial(_delete, place))
        for entry in new:
            if entry not in old:
                place = self._session.root + index_znode(entry, path)
                plan.add("entry", path, place, 0, partial(_create_empty, place, self._session.acl, ephemeral))

    def _plan_append(self, plan: _Plan, append: Append, moved: dict[str, tuple[int, int]]) -> None:
        prefix, indexes, root = append.prefix, tuple(dict.fromkeys(append.indexes)), self._session.root
        parent, _, base = prefix.path.rpartition("/")
        era, version = moved.get(parent) or self._eras.open(parent)
        guard = root + era_record(parent)
        data = to_data(append.value, indexes, prefix.partition)
        if not indexes:
            place = root + sequence_znode(parent, era, base)
            plan.add("era", parent, guard, 0, lambda t: t.check(guard, version))
            plan.add("append", parent, place, len(data), lambda t: t.create(place, data, self._session.acl, sequence=True))

            def appended(made: str) -> Record:
                path = numbered_key(parent, era, made.rpartition("/")[2])
                self._eras.saw(parent, era, int(made[-10:]))
                return Record(Key(path, prefix.partition), append.value, 0, indexes)

            plan.gives(appended)
            return
        # An index entry must name the appended record, but ZooKeeper chooses the number of a sequential znode only while it runs
        # the multi. So the append opens the next era, whose first number is known. This is slower, because all other processes must
        # read the era record again.
        path = prefix.key((era + 1) * ERA_SIZE).path
        house, place = root + era_folder(parent, era + 1), root + znode(path)
        record = Record(prefix.key((era + 1) * ERA_SIZE), append.value, 0, indexes)
        plan.add("era", parent, guard, 20, lambda t: t.set_data(guard, b"%d" % (era + 1), version))
        plan.add("house", parent, house, 0, lambda t: t.create(house, b"", self._session.acl))
        plan.add("append", parent, place, len(data), lambda t: t.create(place, data, self._session.acl))
        plan.gives(lambda _: record)
        self._plan_entries(plan, path, (), indexes)
        moved[parent] = (era + 1, version + 1)
        self._eras.forget(parent)

    # --- failing ---

    def _check(self, plan: _Plan, results: Sequence[Any], found: dict[str, _Found], needed: list[Key]) -> None:
        """Return if the multi succeeded. If it failed, raise the error for the caller, or remove the cause and raise _Again."""
        errors = [
            (step, result)
            for step, result in zip(plan.steps, results, strict=True)
            if isinstance(result, KazooException) and not isinstance(result, RolledBackError | RuntimeInconsistency)
        ]
        if not errors:
            if any(isinstance(result, Exception) for result in results):
                raise Unavailable(f"ZooKeeper rolled back a group without a reason ({results!r}).", advice="Try again.")
            return
        step, error = errors[0]
        if isinstance(error, NoNodeError) and step.role in ("create", "append", "house", "entry"):
            self._session.make_folders(step.znode.removeprefix(self._session.root))
            raise _Again
        if step.role in ("era", "append", "house"):
            self._eras.forget(step.about)
            if isinstance(error, NodeExistsError):  # a Put created a record with that number: skip the whole era
                self._eras.move_on(step.about)
            raise _Again
        if step.role in ("create", "change", "delete"):
            self._check_record(step, error, found, needed)
            raise _Again
        raise CorruptRecord(
            f"{step.about}: its index entry {step.znode} does not match the record ({type(error).__name__}); nothing was done.",
            advice="Another program than txnsegment changed the znodes: restore them from a backup.",
        )

    def _check_record(self, step: _Step, error: KazooException, found: dict[str, _Found], needed: list[Key]) -> None:
        """Return if the group may be sent again. Otherwise raise the error for the caller."""
        path = step.about
        read_before = any(key.path == path for key in needed)
        if isinstance(error, NotEmptyError) and step.role == "delete":
            found[path] = replace(found.get(path) or _Found(None, ABSENT), is_folder=True)
            return
        if not isinstance(error, BadVersionError | NoNodeError | NodeExistsError):
            raise Unavailable(f"{path}: ZooKeeper refused the write ({error!r}); nothing was done.") from error
        if read_before:  # the record has changed since it was read: read it again and check `expect` again
            found.pop(path)
            return
        if step.role == "create":
            (outcome,) = self._session.flight([get(step.znode)])
            if isinstance(outcome, NoNodeError):
                raise lost_race(path, ABSENT, 0) from error  # the record existed when the multi failed, and was deleted since then
            data, state = outcome
            if data:
                raise lost_race(path, ABSENT, state.version) from error
            found[path] = _Found(None, state.version, is_folder=True)
            return
        raise BadVersion(f"{path} now has another version, or is gone ({type(error).__name__}).") from error


def _delete(path: str, transaction: Any) -> None:
    transaction.delete(path)


def _create_empty(path: str, acl: Any, ephemeral: bool, transaction: Any) -> None:
    transaction.create(path, b"", acl, ephemeral=ephemeral)


def _is_pinned(write: Put | Delete) -> bool:
    """Return whether `expect` alone is enough to plan the write, so that the record need not be read before."""
    if isinstance(write.expect, Record):
        return not (isinstance(write, Put) and write.ephemeral)
    # a delete of a missing record sends nothing, so the record must be read
    return isinstance(write, Put) and write.expect == ABSENT


def to_record(key: Key, data: bytes, version: int) -> Record | None:
    """Return the record in a znode. Return None if the znode is an empty folder, or if the record has another partition key than
    `key`. Raises CorruptRecord.
    """
    if not data:
        return None
    stored, value, indexes = from_data(key.path, data)
    if stored.partition and key.partition and stored.partition != key.partition:
        return None
    return Record(stored if stored.partition else key, value, version, indexes)
