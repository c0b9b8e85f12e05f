"""The log of acknowledgements over a model of a broker that fences, loses replies and ends transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metadata.common.errors import OptionError
from pulsar_protocol.errors import ConnectionLost
from spark_txn_sink.pulsar.control import TakenOver
from tests.support.pulsar_ack_model import Broker, T, acks_of, row
from txnsegment.pulsar import ack_log
from txnsegment.pulsar.ack_log import AckLog, SubscriptionBusy
from txnsegment.pulsar.ack_records import Acked, Begin, Checkpoint, Done, Moved, decode


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def consumer(broker: Broker) -> Callable[[], AckLog]:
    return lambda: acks_of(broker)


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_lost_acknowledgement_is_looked_up_and_counts_once(broker: Broker, consumer: Callable[[], AckLog], lost: str) -> None:
    acks = consumer()
    acks.move({}, {})
    broker.lost = [lost]
    acks.acknowledge(row(3))
    assert acks.state().rows == row(3)
    assert sum(isinstance(one, Acked) for one in broker.records()) == 1


def test_a_second_consumer_is_refused_while_the_first_one_lives(consumer: Callable[[], AckLog]) -> None:
    first = consumer()
    first.move(row(1), {})
    with pytest.raises(SubscriptionBusy, match="Another consumer or transaction has the subscription 's' of t"):
        consumer().state()
    first.close()
    assert consumer().state().rows == row(1)


def test_a_log_that_was_closed_is_not_taken_over_again(broker: Broker, consumer: Callable[[], AckLog]) -> None:
    """Another thread may still use it. The next consumer must not wait for it."""
    acks = consumer()
    acks.move({}, {})
    acks.close()
    with pytest.raises(OptionError, match="the subscription 's' of t are closed"):
        acks.state()
    assert consumer().state().owner is not None


def test_a_consumer_that_was_replaced_can_acknowledge_nothing(broker: Broker, consumer: Callable[[], AckLog]) -> None:
    first = consumer()
    first.move({}, {})
    first.forget()  # its connection was lost
    second = consumer()
    second.acknowledge(row(2))
    second.close()
    with pytest.raises(TakenOver, match="Another consumer has taken over"):
        first.acknowledge(row(1))
    broker.txns[T] = "OPEN"
    with pytest.raises(TakenOver):
        first.begin(T)
    with pytest.raises(TakenOver):
        first.prepare(T, row(1))
    assert consumer().state().rows == row(2)


def test_two_consumers_that_the_broker_accepts_at_the_same_time_do_not_both_commit(
    broker: Broker, consumer: Callable[[], AckLog]
) -> None:
    """The broker 5.0.0-M1 can accept both of two exclusive producers."""
    broker.fences = False
    broker.txns[T] = "OPEN"
    first, second = consumer(), consumer()
    first.move({}, {})
    second.state()
    with pytest.raises(TakenOver):
        first.begin(T)
    assert second.state().rows == {}


def test_a_transaction_that_began_before_another_consumer_took_over_is_aborted(
    broker: Broker, consumer: Callable[[], AckLog]
) -> None:
    broker.fences = False
    broker.txns[T] = "OPEN"
    first, second = consumer(), consumer()
    first.move({}, {})
    first.begin(T)
    assert second.state().rows == {}
    first.prepare(T, row(1))
    assert broker.txns[T] == "ABORTED"


def test_the_next_consumer_aborts_a_transaction_that_may_still_commit(broker: Broker, consumer: Callable[[], AckLog]) -> None:
    broker.txns[T] = "OPEN"
    first = consumer()
    first.move({}, {})
    first.begin(T)
    first.prepare(T, row(1))
    first.close()  # killed before the commit
    assert consumer().state().rows == {}
    assert broker.txns[T] == "ABORTED"


def test_acknowledgements_are_written_in_their_transaction(broker: Broker, consumer: Callable[[], AckLog]) -> None:
    broker.txns[T] = "OPEN"
    acks = consumer()
    acks.move({}, {})
    acks.begin(T)
    acks.prepare(T, row(1))
    assert [(type(decode(data)), txn) for data, txn in broker.entries[-2:]] == [(Begin, None), (Done, T)]


def test_a_done_does_not_count_before_its_transaction_has_ended(broker: Broker, consumer: Callable[[], AckLog]) -> None:
    broker.txns[T] = "OPEN"
    acks = consumer()
    acks.move({}, {})
    acks.begin(T)
    acks.prepare(T, row(1))
    assert acks.state().rows == {}
    broker.txns[T] = "COMMITTED"
    acks.ended(T, row(1), "committed")
    assert acks.state().rows == row(1)


def test_acknowledgements_that_the_broker_writes_after_the_take_of_the_next_consumer_count(
    broker: Broker, consumer: Callable[[], AckLog]
) -> None:
    """The broker writes a record of the transaction before the `done`, and does not look at the producer again. Here the `done`
    arrives, and the transaction is committed, when the next consumer is about to abort the transaction.
    """
    broker.txns[T] = "OPEN"
    first = consumer()
    first.move({}, {})
    first.begin(T)
    first.close()
    broker.late = Done(T, row(1))
    assert consumer().state().rows == row(1)
    assert broker.txns[T] == "COMMITTED"


def test_a_consumer_that_connects_again_does_not_abort_its_own_transaction(broker: Broker, consumer: Callable[[], AckLog]) -> None:
    broker.txns[T] = "OPEN"
    acks = consumer()
    acks.move({}, {})
    acks.begin(T)
    acks.forget()
    acks.acknowledge(row(1))
    acks.prepare(T, row(2))
    assert broker.txns[T] == "OPEN"


def test_the_next_consumer_finds_the_acknowledgements_of_a_committed_transaction(
    broker: Broker, consumer: Callable[[], AckLog]
) -> None:
    broker.txns[T] = "OPEN"
    first = consumer()
    first.move({}, {})
    first.begin(T)
    first.prepare(T, row(1))
    broker.txns[T] = "COMMITTED"
    first.close()  # killed after the commit
    assert consumer().state().rows == row(1)


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_lost_begin_is_repeated(broker: Broker, consumer: Callable[[], AckLog], lost: str) -> None:
    broker.txns[T] = "OPEN"
    acks = consumer()
    acks.move({}, {})
    broker.lost = [lost]
    acks.begin(T)
    acks.prepare(T, row(1))
    assert broker.txns[T] == "OPEN"
    broker.txns[T] = "COMMITTED"
    acks.ended(T, row(1), "committed")
    assert acks.state().rows == row(1)
    acks.close()
    assert consumer().state().rows == row(1)


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_lost_done_is_an_error_after_which_the_transaction_is_aborted(
    broker: Broker, consumer: Callable[[], AckLog], lost: str
) -> None:
    broker.txns[T] = "OPEN"
    acks = consumer()
    acks.move({}, {})
    acks.begin(T)
    broker.lost = [lost]
    with pytest.raises(ConnectionLost):
        acks.prepare(T, row(1))
    broker.txns[T] = "ABORTED"
    acks.ended(T, row(1), "aborted")
    assert acks.state().rows == {}


@pytest.mark.parametrize("state", ["COMMITTED", "ABORTED"])
def test_a_transaction_that_the_coordinator_forgets_after_its_end_counts_as_it_ended(
    broker: Broker, consumer: Callable[[], AckLog], state: str
) -> None:
    """The broker delivers the `done` of the aborted one, too, as 5.0.0-M1 can after a crash."""
    broker.txns[T] = "OPEN"
    first = consumer()
    first.move({}, {})
    first.begin(T)
    first.prepare(T, row(1))
    broker.txns[T], broker.dirty = state, True
    first.close()
    consumer_of_the_log = consumer()
    consumer_of_the_log.state()
    consumer_of_the_log.close()
    broker.txns[T] = "FORGOTTEN"
    assert consumer().state().rows == (row(1) if state == "COMMITTED" else {})


@pytest.mark.parametrize("state", ["COMMITTED", "ABORTED"])
def test_an_unknown_outcome_is_read(broker: Broker, consumer: Callable[[], AckLog], state: str) -> None:
    broker.txns[T] = "OPEN"
    acks = consumer()
    acks.move({}, {})
    acks.begin(T)
    acks.prepare(T, row(1))
    broker.txns[T] = state
    acks.ended(T, row(1), None)
    assert acks.state().rows == (row(1) if state == "COMMITTED" else {})


def test_a_new_ledger_of_the_log_disturbs_nothing(broker: Broker, consumer: Callable[[], AckLog]) -> None:
    broker.txns[T] = "OPEN"
    acks = consumer()
    acks.move({}, {})
    broker.ledger_starts.append(len(broker.entries))
    acks.acknowledge(row(1))
    assert sum(isinstance(one, Acked) for one in broker.records()) == 1
    broker.ledger_starts.append(len(broker.entries))
    acks.begin(T)
    acks.prepare(T, row(2))
    assert broker.txns[T] == "OPEN"


def test_a_checkpoint_shortens_the_log(broker: Broker, consumer: Callable[[], AckLog], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_log, "CHECKPOINT_EVERY", 5)
    acks = consumer()
    acks.move({}, {})
    for number in range(1, 20):
        acks.acknowledge(row(number))
        acks.checkpoint(acks.state().rows, {})
    assert isinstance(broker.records()[broker.first], Checkpoint)
    acks.close()
    assert consumer().state().rows == row(19)


def test_no_checkpoint_hides_a_transaction_that_may_still_commit(
    broker: Broker, consumer: Callable[[], AckLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ack_log, "CHECKPOINT_EVERY", 1)
    broker.txns[T] = "OPEN"
    acks = consumer()
    acks.move({}, {})
    acks.begin(T)
    acks.prepare(T, row(1))
    acks.checkpoint(acks.state().rows, {})
    assert [type(one) for one in broker.records()][:3] == [ack_log.Take, Moved, Begin]
    assert broker.first == 0
