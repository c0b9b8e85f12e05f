"""Runs the real code of actors as automata: the next request of an actor depends only on the answers that it has had so far.

So an actor's code runs once for each sequence of answers, without the other actors. The request that follows each sequence is
cached, and the search of schedules looks it up. A world (store, files, clock) is an immutable value with a number. The effect of a
request on a world is cached, too. So exploring a million states needs a few thousand runs of the real code, and look-ups for all
the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import greenlet

from conformance.harness.faulty_store import Call, FaultyStore
from conformance.history.format import Event
from conformance.simulator.seen.observer import History
from conformance.simulator.store.faults import Crashed
from conformance.simulator.store.storage import Disk
from ledgers.errors import MissingFile
from ledgers.storage import FileEntry, LedgerStorage
from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, StorageError
from metadata.records.cluster_records import Settings
from metadata.records.paths import Key
from metadata.store.contract import Append, Record, Write
from metadata.store.limits import check_writes
from metadata.store.memory import MemoryState, MemoryStore

PARKED = 3_000
"""Maximum number of runs of actors' code that stay suspended at their last request. Without a suspended run, the code runs again
from its beginning before it gets the next answer.
"""


class Request(NamedTuple):
    """One call of the store or the storage: `get`, `keys`, `index`, `write`, `publish`, `read`, `list`, `delete`."""

    kind: str
    what: tuple[Any, ...]

    def __str__(self) -> str:
        first = self.what[0] if self.what else ""
        return f"{self.kind} {getattr(getattr(first, 'key', None) or getattr(first, 'prefix', first), 'path', first)}"


class Answer(NamedTuple):
    """The answer to a request, and the store's time at the answer. `error`: the text of the error if the request failed, else
    empty.
    """

    value: Any
    now_ms: int
    error: str = ""


Emit = Callable[["Emission"], None]


class Emission(NamedTuple):
    """A note of an actor for the history: that it asks for a commit, was told the result of a commit, has read, or begins a read.

    `key`: what it asks, was told or has read, as a tuple. `make`: a function that creates the event of the history. Its arguments
    are the time of the event and the time at which the actor's last read began. `make` None: there is no event, and the actor's
    next read begins now. `before`: whether the event belongs right before the actor's next step. Otherwise it belongs right after
    the actor's last step.
    """

    key: tuple[Any, ...]
    make: Callable[[int, int], Event] | None = None
    before: bool = False


@dataclass
class Hands:
    """The objects that an actor's code gets. `cluster`: a cluster of its own; the search answers each call that the code makes to
    its store and storage. `emit`: the function that takes the actor's emissions.
    """

    cluster: Cluster
    emit: Emit


Code = Callable[[Hands], None]


# --- the world ------------------------------------------------------------------------------------------------------


class World(NamedTuple):
    """A store with its files and its clock, as an immutable value."""

    state: MemoryState
    files: dict[str, bytes]
    now_ms: int


class Worlds:
    """All worlds that were reached, by number, and the effect of a request on a world."""

    def __init__(self) -> None:
        self.known: list[World] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, world: World) -> int:
        key = (world.state.fingerprint(), frozenset(world.files.items()), world.now_ms)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.known)
            self.known.append(world)
        return found

    def do(self, number: int, request: Request, jump_ms: int = 0) -> tuple[int, Answer, tuple[Event, ...]]:
        """Run a request on the world `number`, after its clock has leapt by `jump_ms`. Return the number of the resulting world,
        the answer, and the history's events for the records that the request changed.
        """
        state, files, now_ms = self.known[number]
        now_ms += jump_ms
        kind, what = request
        events: tuple[Event, ...] = ()
        if kind == "get":
            return self._moved(number, now_ms), Answer(tuple(state.get(key) for key in what), now_ms), events
        if kind == "keys":
            return self._moved(number, now_ms), Answer(tuple(key.path for key in state.keys(what[0])), now_ms), events
        if kind == "index":
            return self._moved(number, now_ms), Answer(tuple(state.scan_index(*what)), now_ms), events
        if kind == "read":
            error = "" if what[0] in files else "MissingFile"
            return self._moved(number, now_ms), Answer(files.get(what[0]), now_ms, error), events
        if kind == "list":
            entries = tuple((path, len(data)) for path, data in sorted(files.items()) if path.startswith(what[0]))
            return self._moved(number, now_ms), Answer(entries, now_ms), events
        if kind == "write":
            state = state.copy()
            try:
                events, records = _write(state, files, what)
            except BadVersion as error:
                return self._moved(number, now_ms), Answer(None, now_ms, error.message), events
            return self.number(World(state, files, now_ms)), Answer(records, now_ms), events
        files = dict(files)
        if kind == "delete":
            files.pop(what[0], None)
        elif what[0] in files:
            return self._moved(number, now_ms), Answer(None, now_ms, "exists"), events
        else:
            files[what[0]] = what[1]
        return self.number(World(state, files, now_ms)), Answer(None, now_ms), events

    def _moved(self, number: int, now_ms: int) -> int:
        world = self.known[number]
        return number if world.now_ms == now_ms else self.number(world._replace(now_ms=now_ms))


class _Still:
    """A clock that always shows 0, for files whose times do not matter."""

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


def _write(
    state: MemoryState, files: dict[str, bytes], writes: Sequence[Write]
) -> tuple[tuple[Event, ...], tuple[Record | None, ...]]:
    before = [None if isinstance(write, Append) else state.get(write.key) for write in writes]
    records = tuple(state.apply(writes, 0))
    disk = Disk(_Still())
    disk.files = {path: (data, 0) for path, data in files.items()}
    history = History(MemoryState(), disk)
    for write, old, record in zip(writes, before, records, strict=True):
        key = record.key if record is not None else getattr(write, "key")  # noqa: B009  an Append always has a record
        history.wrote(key, None if old is None else old.value, None if record is None else record.value)
    return tuple(history.events), records


# --- actors -----------------------------------------------------------------------------------------------------------


def staged_info(rel: str) -> tuple[int, int] | None:
    """Return (size, modification time) of a part that a writer staged before the search; None for any other file."""
    return (4, 0) if rel.startswith("parts/") else None


class _Files(LedgerStorage):
    def __init__(self, run: _Run) -> None:
        self.uri, self._path = "file:///simulated", "/simulated"
        self._run = run

    def publish(self, rel: str, data: bytes) -> None:
        if self._run.ask(Request("publish", (rel, data))).error:
            raise StorageError(f"{rel} exists already.")

    def read(self, rel: str) -> bytes:
        answer = self._run.ask(Request("read", (rel,)))
        if answer.error:
            raise MissingFile(f"{rel} does not exist.")
        assert isinstance(answer.value, bytes)
        return answer.value

    def list(self, folder: str = "") -> Iterator[FileEntry]:
        for path, size in self._run.ask(Request("list", (folder,))).value:
            yield FileEntry(path, size, 0)

    def info(self, rel: str) -> tuple[int, int] | None:
        """Return `staged_info(rel)`. The parts were staged before the search, and no actor deletes them. So the answer never
        changes, and this method needs no `Request`.
        """
        return staged_info(rel)

    def delete(self, rel: str) -> None:
        self._run.ask(Request("delete", (rel,)))


class _Run:
    """One run of an actor's code. It is suspended at each request until `answer` continues it."""

    def __init__(self, name: str, code: Code, settings: Settings, now_ms: int) -> None:
        self._now, self._names, self._name, self._dead = now_ms, 0, name, False
        self.emitted: list[Emission] = []
        store = FaultyStore(MemoryStore(), self._answered)
        cluster = Cluster("memory://exhaustive", store, _Files(self), settings, self, self._unique, owner=name)
        self._hub = greenlet.getcurrent()
        self._greenlet = greenlet.greenlet(lambda: code(Hands(cluster, self.emitted.append)))
        self.request: Request | None = None
        self._greenlet.switch()

    def _unique(self) -> str:
        self._names += 1
        return f"{self._name}{self._names:03d}"

    def now_ms(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._now / 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here: nothing that is undecided is waited for")

    def _answered(self, call: Call, go: Callable[[], Any]) -> Any:
        """Return the answer to a call of the run's store. Its `FaultyStore` calls this function for each call. The search gives the
        answer instead of the store, in one step. No reply is lost, and no session ends.
        """
        match call.kind:
            case "view":
                return go()
            case "scan":
                listed = self._answered(Call("keys", call.what), go)
                found = self._answered(Call("get", tuple(Key(path, call.what[0].partition) for path in listed)), go)
                return [record for record in found if record is not None]
            case "time":
                return self._now
            case "watch" | "skip":
                raise AssertionError("nobody follows anything here, or restores")
            case _:
                check_writes(call.writes)
                answer = self.ask(Request(call.kind, call.what))
        if answer.error:
            raise BadVersion(answer.error)
        return list(answer.value)

    def ask(self, request: Request) -> Answer:
        if self._dead:
            raise Crashed
        self.request = request
        answer: Answer = self._hub.switch()
        self._now = answer.now_ms
        return answer

    def answer(self, answer: Answer) -> None:
        """Give this answer to the code, and run the code until its next request. If the code ends instead, `request` is None."""
        self.request = None
        self._greenlet.switch(answer)

    def close(self) -> None:
        self._dead = True
        if self._greenlet:
            try:
                self._greenlet.throw(Crashed)
            except Crashed:
                return


class Node(NamedTuple):
    """The state of an actor after a sequence of answers. `actor`: its index. `request`: its next request; None if the actor is
    done. `parent`: the number of its previous node. `answer`: the last answer, which led from `parent` to this node. `emitted`: the
    emissions between the two nodes.
    """

    actor: int
    request: Request | None
    emitted: tuple[Emission, ...]
    parent: int
    answer: Answer | None


@dataclass
class Automata:
    """The nodes of all actors, by number. An actor has one node for each sequence of answers that it got in the search."""

    settings: Settings
    start_ms: int
    nodes: list[Node] = field(default_factory=list)
    runs: int = 0
    _codes: list[tuple[str, Code]] = field(default_factory=list)
    _children: dict[tuple[int, Hashable], int] = field(default_factory=dict)
    _parked: OrderedDict[int, _Run] = field(default_factory=OrderedDict)

    def begin(self, name: str, code: Code) -> int:
        """Add an actor with this code. Return the number of its first node."""
        self._codes.append((name, code))
        return self._add(len(self._codes) - 1, -1, None, self._start(len(self._codes) - 1), 0)

    def after(self, node: int, answer: Answer) -> int:
        """Return the number of the node that follows a node after this answer."""
        found = self._children.get((node, answer))
        if found is None:
            run = self._parked.pop(node, None) or self._replayed(node)
            said = len(run.emitted)
            run.answer(answer)
            found = self._children[node, answer] = self._add(self.nodes[node].actor, node, answer, run, said)
        return found

    def name(self, node: int) -> str:
        return self._codes[self.nodes[node].actor][0]

    def close(self) -> None:
        while self._parked:
            self._parked.popitem()[1].close()

    def _start(self, actor: int) -> _Run:
        self.runs += 1
        name, code = self._codes[actor]
        return _Run(name, code, self.settings, self.start_ms)

    def _replayed(self, node: int) -> _Run:
        answers: list[Answer] = []
        at = self.nodes[node]
        while at.answer is not None:
            answers.append(at.answer)
            at = self.nodes[at.parent]
        run = self._start(at.actor)
        for answer in reversed(answers):
            run.answer(answer)
        return run

    def _add(self, actor: int, parent: int, answer: Answer | None, run: _Run, said: int) -> int:
        emitted = tuple(run.emitted[said:])
        self.nodes.append(Node(actor, run.request, emitted, parent, answer))
        number = len(self.nodes) - 1
        if run.request is not None:
            self._parked[number] = run
            if len(self._parked) > PARKED:
                self._parked.popitem(last=False)[1].close()
        return number
