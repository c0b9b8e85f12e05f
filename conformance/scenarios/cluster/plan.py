"""The plan of a run: the faults, their targets and durations, and the pauses between them. The same seed gives the same plan."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.scenarios.faults import Fault
from metadata.common.errors import ConfigurationError

WRITERS = ("writer", "writer", "loader")
"""The parties that write (`writer`: the streaming job; `loader`: the batch job). One that is named twice is struck twice as often.
"""
ANYBODY = ("writer", "writer", "loader", "reader")
ON_TOP = 0.15
"""The share of the faults after which the run does not wait for the parties to recover before the next fault strikes."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault in the plan. `does`: the fault, by the name that all scenarios use. `says`: the fault in words. `parties`:
    it strikes one of these parties, which is chosen at random. A party that is named twice is struck twice as often. `("all",)`
    means that it strikes no single party. `seconds`: the shortest and the longest duration. Both are 0 if the plan chooses none.
    """

    name: str
    does: Fault
    says: str
    parties: Sequence[str] = ("all",)
    seconds: tuple[float, float] = (0.0, 0.0)

    @property
    def target(self) -> str:
        """The first word of the kind's name. For KILL and STOP it names the process or the server that the fault strikes."""
        return self.name.partition("-")[0]

    @property
    def makes_zombie(self) -> bool:
        """Whether the fault stops a driver until a new driver has committed."""
        return self.does is Fault.STOP and self.seconds == (0.0, 0.0)


KINDS = (
    Kind("driver-kill", Fault.KILL, "SIGKILL of a driver: its JVM and its Python processes", ANYBODY),
    Kind("driver-stop", Fault.STOP, "SIGSTOP of a driver, then SIGCONT", ANYBODY, (1, 12)),
    Kind("driver-zombie", Fault.STOP, "SIGSTOP of a driver; its successor commits; then SIGCONT", WRITERS),
    Kind("executor-kill", Fault.KILL, "SIGKILL of an executor", ANYBODY),
    Kind(
        "executor-stop",
        Fault.STOP,
        "SIGSTOP of an executor and its Python workers, then SIGCONT; past 20 s Spark gives it up",
        ANYBODY,
        (2, 26),
    ),
    Kind("python-kill", Fault.KILL, "SIGKILL of a Python worker that runs tasks", ANYBODY),
    Kind("python-stop", Fault.STOP, "SIGSTOP of the Python workers that run tasks, then SIGCONT", ANYBODY, (1, 8)),
    Kind("planner-kill", Fault.KILL, "SIGKILL of a Python worker of a driver, which plans, reads a stream or commits", ANYBODY),
    Kind("follower-kill", Fault.KILL, "SIGKILL of a ZooKeeper follower, then a start on its old data", seconds=(0, 6)),
    Kind("follower-stop", Fault.STOP, "SIGSTOP of a ZooKeeper follower, then SIGCONT", seconds=(1, 10)),
    Kind("leader-kill", Fault.KILL, "SIGKILL of the ZooKeeper leader, then a start on its old data", seconds=(0, 6)),
    Kind("leader-stop", Fault.STOP, "SIGSTOP of the ZooKeeper leader, then SIGCONT", seconds=(1, 10)),
    Kind("session-expiry", Fault.EXPIRE, "a party's ZooKeeper sessions expire on the servers, in silence", ANYBODY),
    Kind("cut", Fault.CUT, "a party's connections to ZooKeeper are cut, several times", ANYBODY, (1, 4)),
    Kind("refused", Fault.REFUSE, "a party cannot connect to ZooKeeper", ANYBODY, (1, 8)),
    Kind("lost-reply", Fault.LOSE_REPLY, "a party's request to ZooKeeper is done and the reply is lost", ANYBODY),
    Kind("delay", Fault.DELAY, "messages between a party and ZooKeeper arrive late", ANYBODY, (2, 8)),
    Kind("disk-full", Fault.FILL, "the disk of the ledgers is full", seconds=(1, 8)),
    Kind("changing-kill", Fault.KILL, "SIGKILL of the process that splits, merges, compacts and trims"),
    Kind("clock", Fault.SHIFT, "a party's clock jumps by seconds, minutes or hours, and stays there", ANYBODY),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Planned:
    """A fault of the plan. `number`: its place in the plan, from 1. `quiet`: the pause before the fault, in seconds. `seconds`: its
    duration. `seed`: the seed of the fault's own random choices. `on_top`: whether the next fault strikes on top of this one,
    before the parties have recovered.
    """

    number: int
    kind: Kind
    party: str
    quiet: float
    seconds: float
    seed: int
    on_top: bool

    def __str__(self) -> str:
        return f"{self.number} {self.kind.name} of {self.party}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


def make_plan(count: int, seed: int, kinds: Sequence[str] = (), roles: Mapping[str, Sequence[str]] = {}) -> list[Planned]:
    """Return a plan of `count` faults. Each kind comes once before any kind comes again. `kinds`: the names of the kinds to use
    (empty: all). `roles`: the jobs of each role (`Scene.roles`). Raises ConfigurationError if a kind does not exist.
    """
    unknown = [name for name in kinds if name not in BY_NAME]
    if unknown:
        raise ConfigurationError(f"There is no fault {', '.join(unknown)}.", advice=f"There are: {', '.join(BY_NAME)}.")
    rng = random.Random(seed)
    chosen = [BY_NAME[name] for name in kinds] or list(KINDS)
    plan: list[Planned] = []
    while len(plan) < count:
        round_ = list(chosen)
        rng.shuffle(round_)
        for kind in round_[: count - len(plan)]:
            party = rng.choice(kind.parties)
            cast = roles.get(party, (party,))
            party = cast[0] if len(cast) == 1 else rng.choice(cast)
            quiet, seconds = rng.uniform(0, 3), rng.uniform(*kind.seconds)
            plan.append(Planned(len(plan) + 1, kind, party, quiet, seconds, rng.randrange(2**32), rng.random() < ON_TOP))
    return plan
