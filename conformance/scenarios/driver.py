"""A driver without Spark. It stages real parts and runs the real `spark_txn_sink.commit`.

A scenario runs these functions in child processes (`forks`), so that it can kill these processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from conformance.domains import keyed
from conformance.harness.faulty_store import FaultyStore
from conformance.scenarios.crash_points import Outcome
from conformance.scenarios.crashing import Crash, Crashing
from conformance.scenarios.history import KEYS, complete, partial, vanished, written
from conformance.scenarios.reading import read_all
from ledgers.arrow import arrow_schema
from metadata.client.client import Client, client, shared_client
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import TxnSegmentError
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.names import PersistentName, is_persistent, persistent_name
from spark_txn_sink import commit as committing
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from spark_txn_sink.planned import Identity, WritePlan
from spark_txn_sink.staging import Staged, stage

SEGMENTS = 4
QUERY = "query-1"
SCHEMA = StructType(
    [
        StructField("key", StringType()),
        StructField("seq", LongType()),
        StructField("batch", LongType()),
        StructField("of", IntegerType()),
    ]
)

EAGER = Settings(fold_after_registrations=1, fold_after_ms=1, header_retention_ms=0)
"""With these settings, each commit also settles, folds and expires at once. So the crash points of a commit also include store
calls of a sweep (protocol.md section 7).
"""


@dataclass(frozen=True)
class Place:
    """A cluster and a topic in it. `ledgers`: the URI of the ledger root; None: the root is in the folder of a SQLite store."""

    url: str
    topic: str
    ledgers: str | None = None


def make(place: Place, settings: Settings = EAGER) -> None:
    """Create the cluster."""
    open_cluster(place.url, ledgers=place.ledgers, settings=settings).close()


def crashing_client(url: str, crash: Crash | None) -> tuple[Client, Crashing]:
    """Return a client, and the policy of the client's store. The policy counts the store calls, and strikes at `crash`. The client
    does its background work before a commit returns, so that the policy counts the store calls of this work, too.
    """
    real = open_cluster(url)
    crashing = Crashing(crash)

    def background(job: Callable[[], object]) -> None:
        job()
        made.sweeper.share()

    made = client(dataclasses.replace(real, store=FaultyStore(real.store, crashing)), background)
    return made, crashing


def planned(place: Place) -> WritePlan:
    options = {"path": place.topic, "serviceUrl": place.url, **keyed(place.topic, segments=str(SEGMENTS))}
    return plan_write(shared_client(place.url), WriteOptions.parse(options, streaming=True), SCHEMA)


def staged(plan: WritePlan, version: int, query: str) -> list[Staged]:
    """Stage the parts of one batch, as two accepted attempts of Spark tasks would. The two tasks have different keys."""
    found = []
    for task in range(2):
        message = stage(plan, [batch_of([r for r in written(version) if (r[1] % KEYS) % 2 == task])])
        found.append(dataclasses.replace(message, query_id=query))
    return found


def batch_of(rows: Sequence[tuple[str, int, int, int]]) -> pa.RecordBatch:
    schema = arrow_schema(SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)], schema=schema
    )


def write_version(place: Place, version: int, crash: Crash | None = None) -> Outcome:
    """Stage a batch and commit it as Spark would. If the commit fails, abort it, as Spark does."""
    plan = planned(place)
    messages = staged(plan, version, QUERY)
    client, store = crashing_client(place.url, crash)
    identity = Identity(None, version, random=False, streaming=True)
    outcome = Outcome(calls=store.calls)
    try:
        committing.commit(client, plan, identity, 30_000, messages)
    except TxnSegmentError as error:
        outcome.error, outcome.message = type(error).__name__, str(error)
        committing.abort(client, plan, identity, messages)
    client.close()
    return outcome


def restart(place: Place, versions: Sequence[int], then: Place | None = None) -> list[str]:
    """Do what Spark does after a crash: write the given versions in turn. A crashed process may have committed the first of them.
    Read all rows before and after these writes. Return what is wrong, in words.

    `then`: the topic of the next case, to which this process finally writes version 0; None: no such topic.
    """
    before = read_all(place.url, place.topic)
    found = partial(before)
    for version in versions:
        outcome = write_version(place, version)
        if outcome.error is not None:
            found.append(f"version {version} could not be written after the restart: {outcome.error}: {outcome.message}")
    after = read_all(place.url, place.topic)
    found += [*complete(after, versions[-1] + 1), *vanished(before, after)]
    found += end(place, versions[-1] + 1)
    if then is not None:
        write_version(then, 0)
    return found


def end(place: Place, batches: int) -> list[str]:
    """Sweep the cluster. Return what is wrong with the rows, and which unfinished transactions and op records the sweep left."""
    return unfinished(place) + complete(read_all(place.url, place.topic), batches)


def unfinished(place: Place) -> list[str]:
    """Sweep the cluster once. Return the transactions that are still open or not settled, and the op records that are left."""
    client, _ = crashing_client(place.url, None)
    if is_persistent(place.topic):
        found = _unfinished_in_stream(client, persistent_name(place.topic))
        client.close()
        return found
    client.sweeper.sweep()
    view = client.cluster.store.view()
    found = [f"still OPEN: {r.key.path}" for r in view.scan_index(paths.TXN_BY_DEADLINE, paths.pad20(0), "9" * 20)]
    found += [f"op record left: {r.key.path}" for r in view.scan_index(paths.OPS_BY_TXN, "", "~")]
    entries = client.buffer.log.list(view).entries
    found += [
        f"not settled: {e.number} of {e.registration.txn}" for e in entries if e.registration.txn and not e.registration.state
    ]
    client.close()
    return found


def _unfinished_in_stream(client: Client, name: PersistentName) -> list[str]:
    """Sweep the persistent topics once. Return the transactions without a final state in the coordinator's log, and those with data
    but no marker in the topic's log.
    """
    client.instream.sweeper.sweep()
    found = [f"still {txn.state}: {txn.least}" for txn in client.instream.coordinator.log.live()]
    return found + [f"ongoing in {name}: {txn}" for txn in client.instream.buffer.read(name).ongoing]
