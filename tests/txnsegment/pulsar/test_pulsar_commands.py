"""Tests of the command line on a real Pulsar broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import TopicMissing
from pulsar_protocol.producer import Producer
from pulsar_protocol.rest import Rest
from pulsar_protocol.sent_log import log_name
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from txnsegment import connect
from txnsegment.cli.app import build
from txnsegment.pulsar.transactions import COMMITTED, UNDECIDED

pytestmark = pytest.mark.pulsar

Run = Callable[..., Result]


@pytest.fixture
def run(pulsar_broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command against the broker. The function checks the exit code, and that the command raises no
    exception but SystemExit.
    """
    monkeypatch.setenv(ADMIN_VARIABLE, pulsar_broker.admin_url)

    def call(*words: str, code: int = 0) -> Result:
        found = CliRunner().invoke(build(), [*words, "--service-url", pulsar_broker.url])
        assert found.exit_code == code, found.output
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return found

    return call


@pytest.fixture
def name() -> str:
    return f"commands-{uuid.uuid4().hex[:8]}"


def write(url: str, topic: str, *values: bytes) -> str:
    """Write rows in one transaction and return its id."""
    with connect(url) as cluster, cluster.begin() as txn:
        txn.append(topic, pa.table({"value": pa.array(values, pa.binary())}))
        found = txn.commit().txn_id
    assert found is not None
    return found


def shown(found: Result) -> list[Any]:
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_topics_are_created_split_merged_and_deleted(run: Run, name: str) -> None:
    assert run("topics", "create", name, "--segments", "2").stdout == f"Created topic://public/default/{name} with 2 segments.\n"
    assert "active instead" in run("topics", "split", name, "--segment", "0").stdout
    assert "active instead" in run("topics", "merge", name, "--segments", "2,3").stdout
    (described,) = shown(run("topics", "describe", name, "--json"))
    assert [one["state"] for one in described["segments"]].count("ACTIVE") == 2
    assert run("topics", "delete", name, "--yes").exit_code == 0
    gone = run("topics", "describe", name, code=1).stderr
    assert "TopicNotFound" in gone or "only a part of the topic" in gone, "the broker was the controller of the topic"
    assert "without a key column and a schema" in run("topics", "create", name, "--key", "id", code=1).stderr


def test_what_is_missing_is_named_with_what_to_do(run: Run, pulsar: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run("topics", "create", name, "--segments", "2")
    for words, says in (
        (("topics", "split", name, "--segment", "99"), "has no active segment 99. The ids of its active segments are 0, 1"),
        (("topics", "merge", name, "--segments", "0,7"), "has no active segment 7"),
        (("topics", "schema", name), "cluster.topics.schema does not exist for a Pulsar cluster. describe(name).schema"),
        (("topics", "create", f"{name}-2", "--key", "k"), "The first write, with or without Spark, registers the schema"),
        (("topics", "read", f"persistent://public/default/{name}-none"), "TopicNotFound. Check the name"),
    ):
        found = run(*words, code=1)
        assert says in " ".join(found.stderr.split()), found.stderr
    assert "ID" in run("topics", "describe", name).stdout.splitlines()[-3]
    monkeypatch.delenv(ADMIN_VARIABLE)
    with connect(pulsar) as cluster, cluster.begin(app=name, version=1) as txn, pytest.raises(TopicMissing) as raised:
        txn.commit()  # which needs the topics that remember the versions of the application
    assert f"Set the variable {ADMIN_VARIABLE}=http://host:8080" in raised.value.advice


def test_rows_are_read_in_the_order_of_their_segment(run: Run, pulsar: str, name: str) -> None:
    run("topics", "create", name)
    write(pulsar, name, b"one", b"two")
    write(pulsar, name, b"three")
    rows = shown(run("topics", "read", name, "--json", "--message-ids"))
    assert [row["value"] for row in rows] == ["b25l", "dHdv", "dGhyZWU="]
    assert [row["__messageId"].rpartition(":")[2] for row in rows] == ["0", "1", "0"]
    assert len(shown(run("topics", "read", name, "--json", "--limit", "2"))) == 2
    (segment,) = shown(run("topics", "describe", name, "--json"))[0]["segments"]
    assert len(shown(run("topics", "read", segment["name"], "--json"))) == 3
    assert "b25l" in run("topics", "read", name).stdout


def test_rows_of_a_parent_come_before_those_of_its_children(run: Run, pulsar: str, name: str) -> None:
    run("topics", "create", name)
    write(pulsar, name, b"old")
    run("topics", "split", name, "--segment", "0")
    for value in (b"new", b"newer"):
        write(pulsar, name, value)
    assert shown(run("topics", "read", name, "--json"))[0]["value"] == "b2xk"


def test_a_topic_of_the_older_model_is_read_by_its_name(run: Run, pulsar: str, name: str) -> None:
    topic = f"persistent://public/default/{name}"
    with PulsarClient(pulsar) as client, Producer(client, topic) as producer:
        producer.send([Message(b"one")])
    assert [row["value"] for row in shown(run("topics", "read", topic, "--json"))] == ["b25l"]
    assert "of the older model" in run("topics", "read", name, code=1).stderr
    assert "of the older model" in run("topics", "create", name, code=1).stderr


def test_a_topic_is_not_created_in_a_namespace_that_does_not_exist(run: Run, name: str) -> None:
    assert "so no topic is created in it" in run("topics", "create", f"topic://public/{name}/t", code=1).stderr


@pytest.mark.parametrize("kind", ["topic", "persistent"])
def test_subscriptions(run: Run, pulsar: str, name: str, kind: str) -> None:
    topic = f"{kind}://public/default/{name}"
    if kind == "topic":
        run("topics", "create", topic)
    with PulsarClient(pulsar) as client:
        places = []
        segment = client.layout(topic).active[0].name if kind == "topic" else topic
        with Producer(client, segment) as producer:
            places += [producer.send([Message(value)]) for value in (b"one", b"two")]
    run("subscriptions", "create", topic, "billing")
    assert [(one["topic"], one["name"], one["lag"]) for one in shown(run("subscriptions", "list", topic, "--json"))[0]] == [
        (topic, "billing", None)
    ]
    assert "unknown" in run("subscriptions", "list", topic).stdout
    (made,) = shown(run("subscriptions", "describe", topic, "billing", "--json"))
    assert [one["markDelete"] for one in made["cursors"]] == [None]
    run("subscriptions", "seek", topic, "billing", "--to", "latest")
    (moved,) = shown(run("subscriptions", "describe", topic, "billing", "--json"))
    assert [one["markDelete"] for one in moved["cursors"]] == [places[-1].text]
    assert "no log numbers" in run("subscriptions", "seek", topic, "billing", "--to", "7", code=1).stderr
    assert "already" in run("subscriptions", "create", topic, "billing", code=1).stderr
    run("subscriptions", "delete", topic, "billing")
    assert "has no subscription billing" in run("subscriptions", "describe", topic, "billing", code=1).stderr


def test_subscriptions_need_the_rest_interface(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run("topics", "create", name)
    monkeypatch.delenv(ADMIN_VARIABLE)
    found = run("subscriptions", "list", name, code=1)
    assert "needs Pulsar's REST interface" in found.stderr
    assert ADMIN_VARIABLE in found.stderr


def test_transactions_of_writers_are_listed(run: Run, pulsar: str, name: str) -> None:
    topic = f"topic://public/default/{name}"
    run("topics", "create", topic)
    run("topics", "create", log_name(topic))
    done = write(pulsar, topic, b"one")
    assert "has committed" in run("txns", "abort", done, code=1).stderr
    with connect(pulsar) as cluster:
        listed = {one.id: one for one in cluster.transactions.list() if one.topic == topic}
        assert {txn: one.state for txn, one in listed.items()} == {done: COMMITTED}
        assert [segment.startswith("segment://") for segment in listed[done].segments] == [True]
        assert cluster.transactions.get(done).state == COMMITTED
    assert done in run("txns", "list", "--state", "committed").stdout
    assert f"state       {COMMITTED}" in run("txns", "show", done).stdout
    assert "is no state" in run("txns", "list", "--state", "COMMITTING", code=1).stderr
    assert "do not name a transaction 0_99999" in run("txns", "show", "0_99999", code=1).stderr
    assert UNDECIDED not in run("txns", "show", done).stdout


def test_transactions_of_an_application_are_listed_with_their_version(run: Run, pulsar: str, name: str) -> None:
    topic = f"topic://public/default/{name}"
    run("topics", "create", topic)
    run("topics", "create", log_name(topic))
    with connect(pulsar) as cluster:
        with cluster.begin(app=name, version=7) as txn:
            txn.append(topic, pa.table({"value": pa.array([b"one"], pa.binary())}))
            txn.commit()
        with cluster.begin(app=name, version=8) as empty:
            empty.commit()
        listed = [one for one in cluster.transactions.list() if one.app == name]
    assert [(one.id, one.version, one.state, one.topic) for one in listed] == [
        (empty.id, 8, COMMITTED, ""),
        (txn.id, 7, COMMITTED, topic),
    ]
    heading = run("txns", "list").stdout.splitlines()[0]
    assert heading.split() == ["ID", "STATE", "APPLICATION", "TOPIC", "VERSION", "CREATED"]


def test_an_open_transaction_is_aborted(run: Run, pulsar: str) -> None:
    with PulsarClient(pulsar) as client:
        txn: TxnId = client.begin(600_000)
        assert run("txns", "abort", txn.text).stdout == f"Transaction {txn.text} is ABORTED.\n"
        client.end(txn, commit=False)
    assert "no id of a transaction" in run("txns", "abort", "seven", code=1).stderr


def test_the_doctor_examines_a_broker(run: Run, pulsar: str, pulsar_broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one["check"]: one for one in shown(run("doctor", "--json"))[0]}
    assert found["topics"]["health"] == ("warn" if "only a part of" in found["topics"]["message"] else "ok")
    assert {name: one["health"] for name, one in found.items() if name != "topics"} == dict.fromkeys(
        ("java", "spark", "door", "credentials", "connection", "version", "transactions", "admin"), "ok"
    )
    assert found["connection"]["message"].startswith(f"{pulsar} answers in ")
    assert "5.0.0-M1" in found["version"]["message"]
    assert "Server 5.0.0-M1" in found["version"]["message"]
    with connect(pulsar) as cluster:
        count = len(cluster.topics.list())
    assert f"public/default has {count}, and" in found["topics"]["message"]
    assert found["transactions"]["message"] == "transactions are on; 2 coordinators"
    assert found["admin"]["message"] == f"{pulsar_broker.admin_url} answers: 5.0.0-M1"
    monkeypatch.delenv(ADMIN_VARIABLE)
    assert "is not set" in run("doctor").stdout
    monkeypatch.setenv(ADMIN_VARIABLE, "http://127.0.0.1:1")
    assert "cannot be reached" in run("doctor", code=1).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "--once"),
        ("compact", "t"),
        ("verify", "t"),
        ("segments", "show", "t"),
        ("topics", "retention", "t"),
        ("topics", "migrate", "persistent://public/default/t", "--to", "u"),
        ("topics", "properties", "persistent://public/default/t"),
        ("topics", "model", "namespace://public/default"),
    ],
)
def test_commands_that_pulsar_does_not_have_say_what_to_do(run: Run, words: tuple[str, ...]) -> None:
    assert "does not exist for" in run(*words, code=1).stderr


def test_lists_are_of_one_namespace(run: Run, pulsar_broker: PulsarBroker, name: str) -> None:
    namespace = f"public/{name}"
    Rest(pulsar_broker.admin_url).ask("PUT", f"/admin/v2/namespaces/{namespace}")
    assert run("topics", "list", "--namespace", namespace).stdout == f"There are no topics in {namespace}.\n"
    assert run("subscriptions", "list", "--namespace", namespace).stdout == f"There are no subscriptions in {namespace}.\n"
    assert run("txns", "list", "--namespace", namespace).stdout == f"There are no transactions in {namespace}.\n"
    topic = f"topic://{namespace}/t"
    run("topics", "create", topic)
    txn = write(pulsar_broker.url, topic, b"a")
    assert topic in run("topics", "list", "--namespace", namespace).stdout
    assert topic not in run("topics", "list").stdout
    assert topic in run("txns", "show", txn, "--namespace", namespace).stdout


def test_a_transaction_is_shown_with_all_its_topics(run: Run, pulsar_broker: PulsarBroker, name: str) -> None:
    topics = [f"topic://public/default/{name}-{letter}" for letter in "ab"]
    with connect(pulsar_broker.url) as cluster, cluster.begin() as txn:
        for topic in topics:
            run("topics", "create", topic)
            txn.append(topic, pa.table({"value": pa.array([b"x"], pa.binary())}))
        found = txn.commit().txn_id
    assert found is not None
    shown = run("txns", "show", found).stdout
    assert all(topic in shown for topic in topics)


def test_a_subscription_has_the_same_name_in_all_commands(run: Run, name: str) -> None:
    run("topics", "create", name)
    run("subscriptions", "create", name, " s ")
    for command in (("describe",), ("seek",), ("delete",)):
        run("subscriptions", *command, name, " s ", *(("--to", "latest") if command == ("seek",) else ()))
