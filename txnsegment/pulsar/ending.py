"""The end of a Pulsar transaction: with the acknowledgements of consumers, and as a version of its application."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

from metadata.common.errors import Fenced, OptionError, OutcomeUnknown, VersionConflict
from pulsar_protocol import auth
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import TRANSACTION_NOT_FOUND, PulsarError, TransactionEnded
from pulsar_protocol.errors import Fenced as ProducerFenced
from pulsar_protocol.service import Service
from spark_txn_sink.pulsar import control
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.committing import Committer
from spark_txn_sink.pulsar.control_topic import ControlTopic
from spark_txn_sink.pulsar.ends import PATIENCE_SECONDS
from spark_txn_sink.pulsar.ends import OutcomeUnknown as WriteUnknown
from spark_txn_sink.pulsar.log_records import Outcome
from spark_txn_sink.pulsar.many_topics import Application, Topic
from spark_txn_sink.pulsar.work import Work
from txnsegment.transaction import TransactionAborted


class Owner(Protocol):
    """A transaction, as consumers know it. `id`: its id at the broker; None: it was not begun."""

    @property
    def id(self) -> str | None: ...


class Participant(Protocol):
    """A consumer whose acknowledgements are in a transaction. `service_url`: the cluster of its topic."""

    service_url: str

    def begun(self, txn: TxnId) -> None:
        """Record that the transaction may have acknowledgements."""

    def prepare(self, owner: Owner, txn: TxnId) -> None:
        """Write the acknowledgements into the transaction. After an error the transaction is aborted."""

    def ended(self, owner: Owner, txn: TxnId | None, outcome: Outcome | None) -> None:
        """Take note of how the transaction ended. `txn` None: it was never begun at the broker. `outcome` None: not known."""


class Participants:
    """The consumers that take part in one transaction."""

    def __init__(self, owner: Owner, service_url: str) -> None:
        self._owner, self._service_url = owner, service_url
        self._joined: list[Participant] = []

    def __bool__(self) -> bool:
        """Return whether a consumer takes part."""
        return bool(self._joined)

    def join(self, participant: Participant, begun: Callable[[], TxnId]) -> None:
        """Let a consumer take part. `begun`: begins the transaction. Raises the errors of `begun` and of the consumer's log."""
        if participant not in self._joined:
            participant.begun(begun())
            self._joined.append(participant)

    def check_cluster(self, participant: Participant) -> None:
        """Raise OptionError if a consumer reads another cluster. A cluster may have several URLs, which have a host in common."""
        hosts = [set(Service.parse(url).hosts) for url in (participant.service_url, self._service_url)]
        if hosts[0].isdisjoint(hosts[1]):
            raise OptionError(
                f"The rows of a consumer of {participant.service_url} cannot be acknowledged by a transaction of "
                f"{self._service_url}: one transaction is of one cluster.",
                advice="Begin the transaction with the cluster object of the consumer. If both URLs are of one cluster, use the "
                "same URL for both.",
            )

    def prepare(self, txn: TxnId) -> None:
        """Let the consumers write their acknowledgements into the transaction."""
        for one in self._joined:
            one.prepare(self._owner, txn)

    def ended(self, txn: TxnId | None, outcome: Outcome | None) -> None:
        """Tell each consumer the outcome, once. If a consumer raises an error, the others are told nevertheless, and the first
        error is raised then.
        """
        errors: list[BaseException] = []
        while self._joined:
            try:
                self._joined[0].ended(self._owner, txn, outcome)
            except BaseException as error:
                errors.append(error)
            del self._joined[0]
        if errors:
            raise errors[0]


def commit_asked(client: PulsarClient, txn: TxnId, *, again: bool, repeatable: bool) -> None:
    """Ask the broker to commit. `again`: it was asked before. `repeatable`: whether the transaction has an application, so that a
    repetition is skipped if it is committed.

    Raises TransactionEnded if the transaction is not committed, and OutcomeUnknown after any other error. OutcomeUnknown has a
    TransactionEnded as its cause if the broker has forgotten the transaction.
    """
    try:
        client.end(txn, commit=True)
    except TransactionEnded as error:
        if not again or error.code != TRANSACTION_NOT_FOUND:
            raise
        raise OutcomeUnknown(
            f"It is unknown whether the Pulsar transaction {txn.text} is committed: the broker has forgotten it.",
            advice="Run it again with the same app and version: that learns it, and writes nothing twice."
            if repeatable
            else "Look for its rows before you run it again.",
        ) from error
    except PulsarError as error:
        raise OutcomeUnknown(
            f"It is unknown whether the Pulsar transaction {txn.text} is committed: {error.message}",
            advice="Call commit() again: it asks the broker, and commits at most once.",
        ) from error


def ended_early(
    txn: TxnId, timeout_ms: int, seconds: float, application: Application, error: TransactionEnded
) -> TransactionAborted:
    """Return the error of a transaction that ended before its commit. `seconds`: the time since its begin. A broker never aborts a
    transaction before its timeout by itself.
    """
    if 1000 * seconds >= timeout_ms:
        why = f"by its timeout of {timeout_ms} ms: it was open for {seconds:.1f} s"
        advice = "Run it again, with a longer timeout."
    else:
        why = f"by another program, {seconds:.1f} s after its begin and before its timeout of {timeout_ms} ms"
        who = (
            "a consumer that took over a subscription which it acknowledges"
            if application.name is None
            else f"another program with app={application.name!r}"
        )
        advice = f"Look for {who}, or for a call of `txnsegment txns abort`. Let only one run at a time, and run it again."
    return TransactionAborted(
        f"The Pulsar transaction {txn.text} was aborted {why} ({error.message}).", advice=f"Nothing of it is visible. {advice}"
    )


class VersionEnd:
    """Ends a transaction as a version of its application, with the errors of the public API.

        with VersionEnd(client, application, opened, topics, rows) as version:
            if version.begin():
                ...                     # write acknowledgements into the transaction
                version.finish(recorded)

    `opened`: the opening of the transaction in the journal. `begin` and `finish` raise NotCommitted and LogDamaged as those of
    `Committer` do.
    """

    def __init__(self, client: PulsarClient, application: Application, opened: Opened, topics: Sequence[Topic], rows: int) -> None:
        assert application.name is not None
        assert application.version is not None
        self._application, url = application, client.url
        self._work = Work(
            txn=opened.txn,
            run=opened.txn.text,
            version=application.version,
            topic=", ".join(one.name for one in topics),
            segments={name: places for one in topics for name, places in one.segments.items()},
            rows=rows,
            what=f"the application {application.name} over several topics",
            streaming=False,
            opened=opened,
            words=control.ARGUMENTS,
        )
        self._control = ControlTopic(
            lambda: auth.connect(url).patient(), application.name, application.journal, application.admin_url
        )
        self._committer = Committer(self._control, pause=time.sleep, now=time.monotonic, patience=PATIENCE_SECONDS)

    def begin(self) -> bool:
        """Prepare the commit. Return False if another transaction has committed the version; then this transaction is aborted."""
        with _translated():
            return self._committer.begin(self._work)

    def finish(self, recorded: Callable[[], object]) -> bool:
        """Commit. Return False if another transaction has committed the version; then this transaction is aborted. `recorded`:
        records where the rows are.
        """
        with _translated():
            return self._committer.finish(self._work, recorded)

    def check(self, error: BaseException) -> None:
        """Raise VersionConflict or Fenced if another program of the application is the reason of `error`. If that cannot be found
        out, add this to `error` as a note.
        """
        try:
            with _translated():
                if self._committer.check(self._work) == "commit":
                    return
        except PulsarError as second:
            error.add_note(f"The control topic of the application {self._application.name} could not be read: {second.message}")
            return
        raise Fenced(
            f"The Pulsar transaction {self._work.txn.text} has ended, and version {self._application.version} of the application "
            f"{self._application.name} is committed by another transaction.",
            advice="Nothing of this transaction is visible. If it repeats a committed version, it has nothing to do. If another "
            "program uses the app, let only one program at a time use it.",
        ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._control.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of the control topic as those of the public API."""
    try:
        yield
    except WriteUnknown as error:
        raise OutcomeUnknown(
            error.message, advice="Call commit() again, or run the transaction again with the same app and version."
        ) from error
    except (control.TakenOver, ProducerFenced) as error:
        raise Fenced(error.message, advice=error.advice) from error
    except control.VersionRefused as error:
        raise VersionConflict(error.message, advice=error.advice) from error
