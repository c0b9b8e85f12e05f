"""The area of one case: an empty part of the store, with sessions, threads, child processes, random numbers and sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from conformance.proxy import TcpProxy
from conformance.store.expectations import NotApplicable, holds
from conformance.store.processes import Child
from conformance.store.site import Place, Site
from metadata.common.clock import Clock, SystemClock
from metadata.store.contract import MetadataStore
from metadata.store.zookeeper import hosts_and_root

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of work of a case.

    `records`: the number of records in the case with many records. `large_seconds`: the time limit for each step of that case.
    `actors`: the number of concurrent threads or processes. `operations`: the number of operations of each actor in a recorded
    history. `rounds`: the number of kills in a case that kills processes; the case with random calls makes 20 calls a round.
    `patience`: the seconds after which a required event counts as missing. `wake_patience`: the same for a wake-up, which a store
    delivers within milliseconds or never.
    """

    records: int = 100_000
    large_seconds: float = 120.0
    actors: int = 6
    operations: int = 120
    rounds: int = 10
    patience: float = 60.0
    wake_patience: float = 15.0


class Area:
    """The area of one case. A context manager: its exit closes every session and ends every process that was opened through it."""

    def __init__(self, site: Site, *, seed: int, name: str, sizes: Sizes, clock: Clock | None = None) -> None:
        """`seed` and `name` (of the case) determine all random choices. A case that is run alone makes the same choices again."""
        self.site = site
        self.seed = seed
        self.sizes = sizes
        self.clock = clock or SystemClock()
        self.random = Random(f"{seed}:{name}")
        self.figures: dict[str, float] = {}
        self.place: Place = site.place()
        self._ends = ExitStack()

    def open(self) -> MetadataStore:
        """Return a new session on this area."""
        return self._ends.enter_context(self.place.open(self.site.opener))

    @cached_property
    def store(self) -> MetadataStore:
        """A session on this area. It is opened at its first use."""
        return self.open()

    # --- at once ---

    def at_once(self, act: Callable[[MetadataStore, int], T], actors: int | None = None) -> list[T]:
        """Call `act(store, n)` in `actors` threads at the same time, and return the results in the order of n. The threads with an
        odd n share one session; each of the others has its own.
        """
        actors = actors or self.sizes.actors
        shared = self.open()
        stores = [shared if n % 2 else self.open() for n in range(actors)]
        gate = threading.Barrier(actors)

        def run(n: int) -> T:
            gate.wait(self.sizes.patience)
            return act(stores[n], n)

        with ThreadPoolExecutor(actors) as pool:
            return list(pool.map(run, range(actors)))

    @contextmanager
    def meanwhile(self, look: Callable[[MetadataStore], None], readers: int = 1) -> Iterator[None]:
        """Call `look` repeatedly in `readers` threads, each with its own session. Every thread has called it once before the block
        begins, and calls it once more after the block has ended. Then raise the first error of a thread.
        """
        stop = threading.Event()
        looked = [threading.Event() for _ in range(readers)]

        stores = [self.open() for _ in range(readers)]

        def run(n: int) -> None:
            try:
                while True:
                    look(stores[n])
                    looked[n].set()
                    if stop.is_set():
                        look(stores[n])
                        return
            finally:
                looked[n].set()

        with ThreadPoolExecutor(readers) as pool:
            running: list[Future[None]] = [pool.submit(run, n) for n in range(readers)]
            try:
                for event in looked:
                    holds(event.wait(self.sizes.patience), f"a reader has looked once within {self.sizes.patience:g} s")
                yield
            finally:
                stop.set()
            for each in running:
                each.result()

    def until(self, true: Callable[[], bool], what: str) -> float:
        """Wait until `true` returns true. Return the seconds taken. Raises ContractBroken, with the text `what`, after
        `sizes.patience` seconds.
        """
        began = self.clock.monotonic()
        while not true():
            holds(self.clock.monotonic() - began < self.sizes.patience, f"{what} (within {self.sizes.patience:g} s)")
            self.clock.sleep(0.02)
        return self.clock.monotonic() - began

    # --- processes and connections ---

    def child(self, job: str, **arguments: Any) -> Child:
        """Return a process that opens this area and waits for `Child.go`. Raises NotApplicable if no second process can open the
        store.
        """
        if not self.site.traits.processes:
            raise NotApplicable("This store lives in one process; no other process can open it.")
        opener = self.site.elsewhere or self.site.opener
        return self._ends.enter_context(Child(self.place, opener, job, arguments, patience=self.sizes.patience))

    def far(self) -> tuple[MetadataStore, TcpProxy]:
        """Return a session whose connection leads through a proxy, and the proxy, which drops replies or cuts the connection on
        command. Raises NotApplicable for any store but ZooKeeper.
        """
        if self.site.scheme != "zk":
            raise NotApplicable(
                "No connection stands between store and caller whose reply could be lost; cases that kill a process show what can."
                if self.site.scheme in ("file", "memory")
                else "The suite can stand between client and servers only for zk:// URLs."
            )
        self.store.view()  # a session without the proxy, which creates the area
        hosts, root = hosts_and_root(self.place.url)
        host, _, port = hosts.split(",")[0].rpartition(":")
        proxy = self._ends.enter_context(TcpProxy(host.strip("[]"), int(port)))
        store = Place(f"zk://{proxy.hosts}{root}", self.place.prefix).open(self.site.opener)
        return self._ends.enter_context(store), proxy

    def close(self) -> None:
        self._ends.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
