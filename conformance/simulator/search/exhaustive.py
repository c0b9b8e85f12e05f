"""Explores every schedule of two writers, a reader and a sweeper up to 3 preemptions and 1 crash.

A *schedule* decides before each call of the store or the storage which actor makes the next call. If this is not the actor of the
last call, although that actor is not done, the switch is a *preemption*. If the actor of the last call is done or dead, the switch
is no preemption. A *crash* ends the actor of the last call before its next call. A crash after a call that only reads has the same
effect as a crash before that call, so it is left out. A crash may also come between any two writes of a group, as on a backend that
writes them one by one. At the end a new process repeats the work of a crashed writer. Each call is answered at once, lists are read
at one moment, and no reply is lost. Delayed replies, torn lists and lost replies occur only in the random schedules.

A *state* is the content of the store with its files and clock, the committed registrations, the answers of each actor so far, the
crashed actors, and the actor of the last call. What an actor was told or has read is judged at once, and is no part of the state.
Nothing else affects the future, so each state is explored once, with the fewest preemptions that reach it. If the next call of the
last actor touches no record that other actors touch (`footprints`), no other actor is scheduled before this call, since every
result would be the same. The remaining schedules are counted exactly, as the paths through the states. At each end state the
history checker judges the history of the first path to this state.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, NamedTuple

from conformance.history.checker import check
from conformance.history.format import Event, Header
from conformance.simulator.quiet import quiet
from conformance.simulator.search import footprints
from conformance.simulator.search.automata import Automata, Request, Worlds
from conformance.simulator.search.footprints import private
from conformance.simulator.search.scenarios import FORGETFUL, SCENARIOS, Scenario, finish, start
from conformance.simulator.seen.observer import History
from conformance.simulator.store.clock import START_MS, SimulatedClock
from conformance.simulator.store.storage import Disk

PREEMPTIONS, CRASHES = 3, 1
Committed = frozenset[tuple[int, str]]
"""The committed registrations: (log number, the attempt that committed it) of each."""
DEAD, DONE = -1, -2
"""Values in a `State` for an actor that makes no more calls, in place of the number of its node. DEAD: the actor crashed, and at
the end a new process repeats its work. DONE: its work is done, or it crashed and nobody repeats its work.
"""

State = tuple[int, tuple[int, ...], int, int, Committed]
"""The number of the world, the node of each actor, the index of the actor of the last call, the count of crashes, and the committed
registrations. The index is -1 before the first call, and if the actor is done or dead.
"""


class Way(NamedTuple):
    """The last step on the first path to a state. `before`: the number of the previous state. `actor`: the index of the actor that
    made a call or crashed. `crash`: whether it crashed. `part`: the number of writes of its next call that were done before the
    crash.
    """

    before: int
    actor: int
    crash: bool
    part: int


class Step(NamedTuple):
    """The result of a request. `world`: the number of the resulting world. `after`: the actor's node after the answer. `events`:
    the history's events for the changed records. `commits`: the registrations that the request committed. `told`: the keys of the
    emissions with what the actor was told or has read. `over`: whether the actor is done.
    """

    world: int
    after: int
    events: tuple[Event, ...]
    commits: Committed
    told: tuple[tuple[Any, ...], ...]
    over: bool


@dataclass
class Found:
    """The result of a search. `schedules`: the number of schedules within the bounds. `states`: the number of states that were
    explored to cover these schedules. `worlds`: the number of different worlds in these states. `runs`: how often an actor's code
    was started. `ends`: the number of end states.
    """

    scenario: str
    preemptions: int
    crashes: int
    schedules: int = 0
    states: int = 0
    worlds: int = 0
    runs: int = 0
    ends: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


class Search:
    """The search of one scenario."""

    def __init__(self, scenario: Scenario, *, preemptions: int = PREEMPTIONS, crashes: int = CRASHES) -> None:
        self.scenario, self.preemptions, self.crashes = scenario, preemptions, crashes
        self.found = Found(scenario.name, preemptions, crashes)
        self._worlds, self._automata = Worlds(), Automata(FORGETFUL, START_MS)
        self._begin = tuple(self._automata.begin(a.name, a.code) for a in scenario.actors)
        self._dead = tuple(DONE if a.again is None else DEAD for a in scenario.actors)
        self._steps: dict[tuple[int, int], Step] = {}
        self._private: dict[tuple[int, tuple[int, ...]], bool] = {}
        self._states: list[State] = []
        self._ways: list[Way] = []
        self._next: list[list[int]] = []
        """For each state the states that may follow, each as 2 * its number + the preemptions of the step (0 or 1)."""
        self._crash_parts: dict[int, range] = {}
        self._numbers: dict[State, int] = {}
        self._endings: dict[tuple[int, int | None], list[Event]] = {}
        self._levels: list[list[int]] = [[] for _ in range(preemptions + 1)]

    def run(self, *, stop_after: int = 5) -> Found:
        """Explore all schedules. After `stop_after` violations, stop early. In that case the schedules are not counted."""
        began = time.perf_counter()
        found = self.found
        self._reach((self._worlds.number(start()), self._begin, -1, 0, frozenset()), (-1, -1, False, 0), 0)
        for level, reached in enumerate(self._levels):
            while reached and len(found.violations) < stop_after:
                self._explore(reached.pop(), level)
        if len(found.violations) < stop_after:
            found.schedules = self._paths()
        found.states, found.worlds, found.runs = len(self._states), len(self._worlds.known), self._automata.runs
        found.seconds = time.perf_counter() - began
        self._automata.close()
        return found

    # --- exploring --------------------------------------------------------------------------------------------------

    def _reach(self, state: State, way: tuple[int, int, bool, int], level: int) -> int:
        """Return the number of a state. `way`: the fields of its `Way`, if the state is new."""
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._ways.append(Way(*way))
            self._next.append([])
            self._levels[level].append(number)
        return number

    def _explore(self, number: int, level: int) -> None:
        """Add the states that may follow a state: one for each actor that may make the next call, and one for each way in which the
        actor of the last call may crash. `level`: the number of preemptions with which the state was reached. All states of a level
        are explored before the next level begins, so the first path to a state has the fewest preemptions.
        """
        _, nodes, last, crashes, _ = self._states[number]
        able = [i for i, node in enumerate(nodes) if node >= 0]
        if not able:
            self._end(number)
            return
        ways = self._next[number]
        if last == -1:
            ways += [2 * self._step(number, actor, level) for actor in able]
            return
        ways.append(2 * self._step(number, last, level))
        if level < self.preemptions and not self._is_private(nodes[last], last, able):
            ways += [2 * self._step(number, actor, level + 1) + 1 for actor in able if actor != last]
        if crashes < self.crashes:
            ways += [2 * self._crash(number, last, part, level) for part in self._parts(nodes[last])]

    def _parts(self, node: int) -> range:
        """Return after how many writes of its next call an actor may crash. Crashes before the call (0) are left out if the last
        call had no effect: a crash before that call is the same.
        """
        known = self._crash_parts.get(node)
        if known is None:
            request = self._request(node)
            parts = len(request.what) if request.kind == "write" else 1
            known = self._crash_parts[node] = range(0 if self._has_done_something(node) else 1, parts)
        return known

    def _request(self, node: int) -> Request:
        request = self._automata.nodes[node].request
        assert request is not None
        return request

    def _has_done_something(self, node: int) -> bool:
        """Return whether the last call of an actor may have had an effect. If not, a crash after it equals a crash before it."""
        return self._request(self._automata.nodes[node].parent).kind not in ("get", "keys", "index", "read", "list")

    def _is_private(self, node: int, actor: int, able: list[int]) -> bool:
        """Return whether the next call of an actor commutes with all calls of the other actors that are not done. If so, no other
        order need be tried.
        """
        key = node, tuple(able)
        known = self._private.get(key)
        if known is None:
            actors = self.scenario.actors
            others = [actors[i].role for i in able if i != actor]
            known = self._private[key] = private(actors[actor].role, self._request(node), others)
        return known

    def _step(self, number: int, actor: int, level: int) -> int:
        world, nodes, _, crashes, committed = self._states[number]
        node = nodes[actor]
        step = self._steps.get((world, node)) or self._do(number, actor)
        if step.commits:
            committed |= step.commits
        if step.told:
            self._judge(step.told, committed, number, actor)
        after, last = (DONE, -1) if step.over else (step.after, actor)
        state = (step.world, (*nodes[:actor], after, *nodes[actor + 1 :]), last, crashes, committed)
        return self._reach(state, (number, actor, False, 0), level)

    def _do(self, number: int, actor: int) -> Step:
        world, nodes, *_ = self._states[number]
        node = nodes[actor]
        jump = self.scenario.jump_ms if actor == len(self._begin) - 1 and node == self._begin[actor] else 0
        footprints.check(self.scenario.actors[actor].role, self._request(node))
        there, answer, events = self._worlds.do(world, self._request(node), jump)
        try:
            after = self._automata.after(node, answer)
        except Exception as error:
            self._bad(number, f"{self._automata.name(node)} raised {type(error).__name__}: {error}", actor)
            step = Step(there, node, events, _committed(events), (), True)
        else:
            arrived = self._automata.nodes[after]
            told = tuple(e.key for e in arrived.emitted if e.key[0] in ("told", "rows"))
            step = Step(there, after, events, _committed(events), told, arrived.request is None)
        self._steps[world, node] = step
        return step

    def _crash(self, number: int, actor: int, part: int, level: int) -> int:
        """Let an actor crash after the first `part` writes of its next call (0: before the call). Return the number of the new
        state.
        """
        world, nodes, _, crashes, committed = self._states[number]
        if part:
            world, _, events = self._worlds.do(world, Request("write", self._request(nodes[actor]).what[:part]))
            committed |= _committed(events)
        state = (world, (*nodes[:actor], self._dead[actor], *nodes[actor + 1 :]), -1, crashes + 1, committed)
        return self._reach(state, (number, actor, True, part), level)

    # --- judging ----------------------------------------------------------------------------------------------------

    def _judge(self, told: Iterable[tuple[Any, ...]], committed: Committed, number: int, actor: int) -> None:
        """Judge what an actor was told or read. A read must return exactly the committed rows up to its cut. A writer that was told
        "committed" must have committed. A writer that was told "skipped" must not have committed, but another writer must have. A
        writer that failed must not have committed.
        """
        for what, *more in told:
            if what == "rows":
                cut, numbers = more[0], more[1]
                if set(numbers) != {n for n, _ in committed if n <= cut}:
                    self._bad(number, f"a read up to {cut} returned {numbers}, committed were {sorted(committed)}", actor)
            else:
                attempt, said = more[0], more[1]
                done = any(attempt == by for _, by in committed)
                if (
                    (said == "committed" and not done)
                    or (said in ("failed", "skipped") and done)
                    or (said == "skipped" and not committed)
                ):
                    self._bad(number, f"{attempt} was told {said}, committed were {sorted(committed)}", actor)

    def _end(self, number: int) -> None:
        """Judge a state in which all actors are done or dead. Repeat the work of a crashed writer, run a last sweep and a last read
        (`finish`), and let the history checker judge the whole history of the first path to this state.
        """
        self.found.ends += 1
        world, nodes, *_ = self._states[number]
        dead = next((i for i, node in enumerate(nodes) if node == DEAD), None)
        if (world, dead) not in self._endings:
            again = None if dead is None else self.scenario.actors[dead].again
            self._endings[world, dead] = finish(self._worlds.known[world], again)
        events = self._history(number)
        events += [_shifted(event, len(events)) for event in self._endings[world, dead]]
        for violation in check(events)[:1]:
            self._bad(number, str(violation), None)

    def _history(self, number: int) -> list[Event]:
        """Return the events on the first path to a state."""
        ways: list[Way] = []
        while self._ways[number].before >= 0:
            ways.append(self._ways[number])
            number = self._ways[number].before
        events: list[Event] = list(History(start().state, Disk(SimulatedClock())).events)
        nodes = self._automata.nodes
        marks = [0] * len(self._begin)
        for before, actor, crash, part in reversed(ways):
            world, at, *_ = self._states[before]
            if crash:
                if part:
                    changes = self._worlds.do(world, Request("write", self._request(at[actor]).what[:part]))[2]
                    events += [event._replace(at=len(events)) for event in changes]
                continue
            for emission in nodes[at[actor]].emitted:
                if emission.make is None:
                    marks[actor] = len(events)
                elif emission.before:
                    events.append(emission.make(len(events), marks[actor]))
            step = self._steps[world, at[actor]]
            for event in step.events:
                events.append(event._replace(at=len(events)))
            for emission in nodes[step.after].emitted:
                if emission.make is not None and not emission.before:
                    events.append(emission.make(len(events), marks[actor]))
        return events

    def _bad(self, number: int, what: str, actor: int | None) -> None:
        way = [] if actor is None else [self.scenario.actors[actor].name]
        at = number
        while self._ways[at].before >= 0:
            each = self._ways[at]
            way.append(self.scenario.actors[each.actor].name + (f" dies ({each.part} done)" if each.crash else ""))
            at = each.before
        self.found.violations.append(f"{self.scenario.name}: {what} [{' '.join(reversed(way))}]")

    # --- counting ---------------------------------------------------------------------------------------------------

    def _paths(self) -> int:
        """Return the number of schedules within the bounds: the paths from the first state to the ends. `known` has the number of
        paths from each state, for each number of preemptions that are left; 0 if it is not known yet.
        """
        budgets = self.preemptions + 1
        known = [0] * (len(self._states) * budgets)
        todo = [self.preemptions]
        while todo:
            number, left = divmod(todo[-1], budgets)
            paths, complete = 0, True
            for way in self._next[number]:
                to, cost = way >> 1, way & 1
                if cost > left:
                    continue
                more = known[to * budgets + left - cost]
                paths += more
                if not more:
                    complete = False
                    todo.append(to * budgets + left - cost)
            if complete:
                known[todo.pop()] = paths if self._next[number] else 1
        return known[self.preemptions]


def _shifted(event: Event, by: int) -> Event:
    """Return a copy of an event whose times are later by `by`."""
    times = {"at": event.at + by}
    if "began" in event._fields:
        times["began"] = event.began + by  # type: ignore[union-attr]
    return event._replace(**times)  # type: ignore[arg-type]


def _committed(events: Iterable[Event]) -> Committed:
    """Return the registrations that these events commit, each with its attempt."""
    return frozenset(
        (e.commit, e.attempt or "") for e in events if isinstance(e, Header) and e.state == "COMMITTED" and e.commit is not None
    )


def search(name: str, preemptions: int = PREEMPTIONS, crashes: int = CRASHES) -> Found:
    """Search a scenario by its name."""
    with quiet():
        return Search(SCENARIOS[name], preemptions=preemptions, crashes=crashes).run()


def exhaust(cores: int = 1, *, preemptions: int = PREEMPTIONS, crashes: int = CRASHES) -> list[Found]:
    """Search all scenarios. With several cores, each scenario is searched in another process."""
    names = list(SCENARIOS)
    if cores == 1:
        return [search(name, preemptions, crashes) for name in names]
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        return list(pool.map(search, names, [preemptions] * len(names), [crashes] * len(names)))


def report(found: list[Found]) -> bool:
    """Print, for each search, its bounds and its numbers of schedules and states. Return whether there are violations."""
    for each in found:
        sys.stdout.write(
            f"{each.scenario}: {SCENARIOS[each.scenario].what}\n"
            f"    complete up to {each.preemptions} preemptions and {each.crashes} crash: {each.schedules:,} schedules, "
            f"{each.states:,} distinct states ({each.worlds:,} of the store, {each.ends:,} ends), "
            f"real code run {each.runs:,} times, {each.seconds:.1f} s: {len(each.violations)} bad\n"
        )
        for what in each.violations:
            sys.stdout.write(f"    {what}\n")
    return any(each.violations for each in found)


__all__ = ["Found", "Search", "exhaust", "report", "search"]
