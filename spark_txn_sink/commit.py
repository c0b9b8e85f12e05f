"""The driver's part of a Spark write: it commits the write as one transaction (protocol.md section 5)."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections import defaultdict
from collections.abc import Sequence

from ledgers.model import Part
from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common.errors import OptionError, TxnConflict
from metadata.common.tracing import span
from metadata.records.names import TopicName, topic_of
from metadata.rules.transitions import Claim
from metadata.write.write_set import Committed, WriteSet
from spark_txn_sink.planned import Identity, WritePlan
from spark_txn_sink.staging import Staged

log = logging.getLogger("txnsegment.sink")


def commit(client: Client, plan: WritePlan, identity: Identity, timeout_ms: int, messages: Sequence[Staged | None]) -> Committed:
    """Commit the parts of all tasks as one transaction, in the order of the tasks. `messages`: the reports of the task attempts
    that Spark accepted.

    Raises the errors of `Coordinator.commit`. Raises TxnConflict if a task did not report, or if the tasks routed by different
    columns.
    """
    kind = "micro_batch" if identity.streaming else "write"
    with span(kind, topic=str(plan.topic), version=identity.version, tasks=len(messages)) as made:
        done = _commit(client, plan, identity, timeout_ms, messages)
        made.set(rows=done.rows, bytes=done.bytes, skipped=done.skipped)
        return done


def _commit(client: Client, plan: WritePlan, identity: Identity, timeout_ms: int, messages: Sequence[Staged | None]) -> Committed:
    staged = reported(messages)
    key = agreed_key(plan, staged)
    schema_id = plan.schema_id
    if schema_id is None and any(m.parts for m in staged):
        _, schema_id = Providers(client).evolve(plan.topic, plan.types, key, grow=plan.grows)
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
    return Providers(client).coordinator([topic]).commit(work)


def abort(client: Client, plan: WritePlan, identity: Identity, messages: Sequence[Staged | None]) -> None:
    """Abort the transaction of a write that Spark gave up. Spark calls this after a failed task, or after a commit that raised an
    error. The call may come in another process, and long after a later attempt took over.

    Only an OPEN header of this attempt is aborted, and no file is deleted. If a task did not report, no commit was tried, so there
    is no transaction.
    """
    staged = [m for m in messages if m is not None]
    if len(staged) != len(messages) or not staged:
        log.info("abort topic=%s version=%s: nothing was opened", plan.topic, identity.version)
        return
    topic = staged_for(plan, staged)
    Providers(client).coordinator([topic]).abort_attempt(_app(identity, staged), str(topic), claim(identity, staged))


def staged_for(plan: WritePlan, staged: Sequence[Staged]) -> TopicName:
    """Return the topic for which the tasks staged rows, or the plan's topic if there are no rows. The two topics may differ,
    because tasks and driver plan separately, and the topic may have been migrated between the two plans.
    """
    return next((topic_of(segment) for message in staged for segment, _ in message.parts), plan.topic)


def claim(identity: Identity, staged: Sequence[Staged]) -> Claim:
    """Return the version and attempt of this write. The attempt is a digest of the tasks' reports, so that the commit and the abort
    of one attempt have the same value. For a stream, and for a batch write in `foreachBatch`, the result also has the id of the
    query.
    """
    digest = hashlib.sha256("\n".join(sorted(m.staging_id for m in staged)).encode()).hexdigest()[:32]
    return Claim(identity.version, query(staged), digest, identity.streaming, identity.accepts_loss)


def reported(messages: Sequence[Staged | None]) -> list[Staged]:
    """Return the reports of all tasks. Raises TxnConflict if a task did not report."""
    staged = [m for m in messages if m is not None]
    if len(staged) != len(messages):
        raise TxnConflict("A task did not report what it staged.", advice="Spark must not commit such a write; run it again.")
    return staged


def agreed_key(plan: WritePlan, staged: Sequence[Staged]) -> str | None:
    """Return the column by which the tasks routed their rows. Raises TxnConflict if the tasks used different columns. The opening
    of the transaction checks that the topic still has this key.
    """
    keys = {m.key for m in staged if m.parts}
    if len(keys) > 1:
        raise TxnConflict(
            f"The topic {plan.topic} got its key while this write staged its rows: some were routed by the key and some were not.",
            advice="Nothing was committed; run the write again.",
        )
    return keys.pop() if keys else plan.key


def _app(identity: Identity, staged: Sequence[Staged]) -> str:
    app = identity.app if identity.app is not None else query(staged)
    if app is None:
        raise OptionError(
            "The write has no application: the streaming query's id did not reach the tasks.",
            advice="Give the stream the option txnAppId.",
        )
    return app


def query(staged: Sequence[Staged]) -> str | None:
    """Return the id of the streaming query for which the tasks ran, or None for a batch write outside of `foreachBatch`."""
    return next((m.query_id for m in staged if m.query_id is not None), None)
