"""The driver's side: one Spark write becomes one transaction (protocol.md section 5)."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ledgers.model import Part
from metadata.client.client import Client
from metadata.client.providers import CoordinatorProvider, Providers, model_of
from metadata.common.errors import OptionError, TxnConflict
from metadata.records.names import TopicName, topic_of
from metadata.rules.transitions import Claim
from metadata.write.write_set import Committed, WriteSet
from spark_txn_sink.plan import WritePlan
from spark_txn_sink.staging import Staged

log = logging.getLogger("txnsegment.sink")


@dataclass(frozen=True)
class Identity:
    """Who writes which version, as far as the options and the batch id say it. `app` None: the query's id. `accepts_loss`: see
    `Claim`."""

    app: str | None
    version: int
    random: bool
    streaming: bool
    accepts_loss: bool = False


def commit(client: Client, plan: WritePlan, identity: Identity, timeout_ms: int, messages: Sequence[Staged | None]) -> Committed:
    """Commit what the accepted attempts staged, in the order of the tasks; all of it or nothing, once for each version.

    Raises what `Coordinator.commit` raises; then Spark runs the batch again.
    """
    staged = reported(messages)
    key = agreed_key(plan, staged)
    schema_id = plan.schema_id
    if schema_id is None and any(m.parts for m in staged):
        _, schema_id = Providers(client).evolve(plan.topic, plan.types, key)
    parts: dict[str, list[Part]] = defaultdict(list)
    for message in staged:
        for segment, part in message.parts:
            assert schema_id is not None
            parts[segment].append(part if part.schema == schema_id else dataclasses.replace(part, schema=schema_id))
    topic = staged_for(plan, staged)
    work = WriteSet(
        app=_app(identity, staged),
        app_topic=str(topic),
        claim=claim(identity, staged),
        parts=parts,
        staged_ms=min((m.staged_ms for m in staged), default=plan.staged_ms),
        timeout_ms=timeout_ms,
        random=identity.random,
        keys={str(topic): key},
    )
    return _coordinator(client, topic).commit(work)


def abort(client: Client, plan: WritePlan, identity: Identity, messages: Sequence[Staged | None]) -> None:
    """Spark gave the write up, perhaps after a commit that raised, perhaps in a new process and long after a successor took over.

    Ends only an OPEN header of this very attempt and deletes no file. A task that never reported means that no commit was tried.
    """
    staged = [m for m in messages if m is not None]
    if len(staged) != len(messages) or not staged:
        log.info("abort topic=%s version=%s: nothing was opened", plan.topic, identity.version)
        return
    topic = staged_for(plan, staged)
    _coordinator(client, topic).abort_attempt(_app(identity, staged), str(topic), claim(identity, staged))


def staged_for(plan: WritePlan, staged: Sequence[Staged]) -> TopicName:
    """The topic that the rows were staged for. The tasks had a plan of their own, and between theirs and ours the topic may have
    been migrated; without rows it is the one of our plan.
    """
    return next((topic_of(segment) for message in staged for segment, _ in message.parts), plan.topic)


def _coordinator(client: Client, topic: TopicName) -> CoordinatorProvider:
    """Who decides a write to this topic."""
    return Providers(client).by_model(model_of(topic)).coordinator  # if it was migrated since, that one knows where rows go on


def claim(identity: Identity, staged: Sequence[Staged]) -> Claim:
    """`attempt` is derived from the commit messages, so that commit and abort of one attempt agree on it. A batch write in
    `foreachBatch` has a query, too.
    """
    digest = hashlib.sha256("\n".join(sorted(m.staging_id for m in staged)).encode()).hexdigest()[:32]
    return Claim(identity.version, query(staged), digest, identity.streaming, identity.accepts_loss)


def reported(messages: Sequence[Staged | None]) -> list[Staged]:
    """What the tasks say. Raises TxnConflict if one says nothing."""
    staged = [m for m in messages if m is not None]
    if len(staged) != len(messages):
        raise TxnConflict("A task did not report what it staged.", advice="Spark must not commit such a write; run it again.")
    return staged


def agreed_key(plan: WritePlan, staged: Sequence[Staged]) -> str | None:
    """The column that the tasks routed by, which may differ from our plan's: whether it is still the topic's is checked at opening.
    Raises TxnConflict if they differ among themselves.
    """
    keys = {m.key for m in staged if m.parts}
    if len(keys) > 1:
        raise TxnConflict(
            f"The topic {plan.topic} got its key while this write staged its rows: some were routed by it and some were not.",
            advice="Nothing was committed; run the write again.",
        )
    return keys.pop() if keys else plan.key


def _app(identity: Identity, staged: Sequence[Staged]) -> str:
    app = identity.app if identity.app is not None else query(staged)
    if app is None:
        raise OptionError(
            "The streaming query's id did not reach the tasks, so the write has no identity.",
            advice="Name the stream by the option txnAppId.",
        )
    return app


def query(staged: Sequence[Staged]) -> str | None:
    """The streaming query that the tasks worked for; None: a batch write outside of streams."""
    return next((m.query_id for m in staged if m.query_id is not None), None)
