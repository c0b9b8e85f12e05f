"""Who runs in a deployment: which jobs write and read which topics, and how many segments those have meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.domains import MIXED, PERSISTENT, TOPIC, named
from metadata.common.errors import ConfigurationError

SCALING = "one topic, split 4 -> 16 and merged 16 -> 4 under three streaming writers and three readers"
"""What the option of that name does."""


@dataclass(frozen=True)
class Writes:
    """A job that writes every batch of the input into one topic. `streams`: a streaming query does; else one batch write after the
    other. `cores`: of its executors.
    """

    name: str
    topic: str
    streams: bool
    cores: int


@dataclass(frozen=True)
class Reads:
    """A job with a streaming query over all topics of the scene. `batches`: with batch reads beside it. `limit`: rows of a
    micro-batch, softly (0: whatever there is).
    """

    name: str
    cores: int
    batches: bool = True
    limit: int = 0


@dataclass(frozen=True)
class Scene:
    """`fewest`, `most`: active segments of a topic that has any; it begins with `first`. `rounds`: it is split until it has most,
    then merged until it has fewest, and again; else either comes by chance.

    `roles`: whom a fault strikes that names a writer, a loader (the batch writer) or a reader.
    """

    topics: tuple[str, ...]
    writers: tuple[Writes, ...]
    readers: tuple[Reads, ...]
    roles: Mapping[str, Sequence[str]]
    first: int = 2
    fewest: int = 1
    most: int = 4
    rounds: bool = False

    @property
    def jobs(self) -> tuple[Writes | Reads, ...]:
        return (*self.writers, *self.readers)

    @property
    def cores(self) -> int:
        """Of all jobs together."""
        return sum(job.cores for job in self.jobs)


def usual(domain: str = TOPIC) -> Scene:
    """A streaming job and a batch job, each with a topic of its own, and one that reads both. Few segments, because each batch
    leaves a file for each task and segment, and batch reads read all of them.
    """
    first, second = (PERSISTENT, TOPIC) if domain == MIXED else (domain, domain)
    streamed, loaded = named(first, "streamed"), named(second, "loaded")
    return Scene(
        (streamed, loaded),
        (Writes("writer", streamed, streams=True, cores=2), Writes("loader", loaded, streams=False, cores=1)),
        (Reads("reader", cores=2),),
        {"writer": ("writer",), "loader": ("loader",), "reader": ("reader",)},
    )


def scaling() -> Scene:
    """One topic under three streaming writers and three readers, split 4 -> 16 and merged back 16 -> 4 under them."""
    topic = named(TOPIC, "scaled")
    writers = tuple(Writes(f"writer{i}", topic, streams=True, cores=1) for i in (1, 2, 3))
    readers = (Reads("reader1", 1), Reads("reader2", 1, batches=False), Reads("reader3", 1, batches=False, limit=500))
    names = tuple(job.name for job in writers)
    roles = {"writer": names, "loader": names, "reader": tuple(job.name for job in readers)}
    return Scene((topic,), writers, readers, roles, first=4, fewest=4, most=16, rounds=True)


def chosen(*, scale: bool, domain: str | None) -> Scene:
    """As a command line says. Raises ConfigurationError: a persistent topic is one log and has no segments."""
    if not scale:
        return usual(domain or TOPIC)
    if domain not in (None, TOPIC):
        raise ConfigurationError(f"--scaling is of topic://, not of --domain {domain}.", advice="Give one of both.")
    return scaling()
