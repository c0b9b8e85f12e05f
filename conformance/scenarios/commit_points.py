"""Crash points of a commit. A fault strikes the committing process at one of its store calls: the process is killed (also beside a
twin), or it is stopped while a new process works, or the call fails.

Each case has a topic of its own, with version 0 committed. The fault strikes the commit of version 1. Then a new process does what
Spark does after a restart, and all rows are checked. There is a case for every store call of a commit.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from conformance.scenarios.crash_points import Case, CrashPoints, meet
from conformance.scenarios.crashing import Crash, When
from conformance.scenarios.driver import Place, end, make, restart, write_version
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Forks

AROUND = (When.BEFORE, When.AFTER)


class CommitPoints(CrashPoints):
    """The crash points of one fault, in one cluster. The topics of the cases have the namespace and the domain (topic:// or
    persistent://) of `cluster.topic`. `last`: only the store calls up to this number, counted from 1, get a case; None: all get
    one.
    """

    def __init__(
        self, forks: Forks, cluster: Place, fault: Fault, whens: Sequence[When] = AROUND, *, last: int | None = None
    ) -> None:
        super().__init__()
        self._forks, self._cluster, self.fault, self._whens, self._last = forks, cluster, fault, whens, last
        folder = cluster.topic.rpartition("/")[0]
        self._names = (f"{folder}/{fault}-{n}" if folder else f"{fault}-{n}" for n in itertools.count())
        self.name = f"commit, {fault}"

    def setup(self) -> None:
        self._forks.call(make, self._cluster)

    def cases(self) -> Iterator[Case]:
        place = self._next()
        calls = len(self._forks.call(write_version, place, 1).calls)
        place = self._next()
        crashed = Fault.KILL if self.fault is Fault.TWIN else self.fault
        for call in range(1, 1 + min(calls, self._last or calls)):
            for when in self._whens:
                then = dataclasses.replace(self._cluster, topic=next(self._names))
                yield self._case(place, Crash(call, when, crashed), then)
                place = then

    def _next(self) -> Place:
        """Write version 0 to a new topic and return its place. Only the first two topics need this method, because each case writes
        version 0 to the topic of the next case.
        """
        place = dataclasses.replace(self._cluster, topic=next(self._names))
        self._forks.call(write_version, place, 0)
        return place

    def _case(self, place: Place, crash: Crash, then: Place) -> Case:
        victim = self._forks.start(write_version, place, 1, crash)
        twin = self._forks.start(write_version, place, 1) if self.fault is Fault.TWIN else None
        hit, wrong = meet(victim, crash, lambda: self._forks.call(restart, place, (1, 2), then), twin=twin)
        if crash.fault is Fault.STOP:
            wrong += self._forks.call(end, place, 3)
        return Case(f"{crash}{' beside a twin' if twin else ''}", hit, wrong)
