"""The Pulsar broker of the tests listens on the loopback interface only, keeps its rows over a kill, and leaves no processes."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from conformance.ports import free_ports
from conformance.processes import Session, processes
from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import Unavailable
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Message
from pulsar_protocol.producer import Producer
from tests.support.pulsar_reads import messages_of

pytestmark = pytest.mark.pulsar


def listening(pid: int) -> list[str]:
    """Return the addresses on which a process listens, in the form of /proc: 32 or 128 bits in hexadecimal digits."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the process has closed the descriptor meanwhile
            sockets |= set(re.findall(r"socket:\[(\d+)\]", str(descriptor.readlink())))
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return [line[1].partition(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets]


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def test_all_servers_listen_on_the_loopback_interface_only(pulsar_broker: PulsarBroker) -> None:
    assert pulsar_broker.pid is not None
    assert pulsar_broker.zookeeper.pid is not None
    found = [listening(pulsar_broker.pid), listening(pulsar_broker.zookeeper.pid)]
    assert [len(one) for one in found] == [3, 1], "binary protocol, web and bookie; ZooKeeper"
    assert {address for one in found for address in one} <= LOOPBACK


def test_a_split_and_a_merge_change_the_layout(pulsar_broker: PulsarBroker) -> None:
    topic = pulsar_broker.create("broker-layouts", 2)
    pulsar_broker.split(topic, 1)
    pulsar_broker.merge(topic, 2, 3)
    with PulsarClient(pulsar_broker.url) as client:
        layout = client.layout(topic)
    assert [(one.id, one.start, one.end) for one in layout.active] == [(0, 0, 0x7FFF), (4, 0x8000, 0xFFFF)]
    assert layout.segments[4].parents == (2, 3)


def test_the_answer_of_the_broker_is_in_the_error(pulsar_broker: PulsarBroker) -> None:
    with pytest.raises(Unavailable, match=r"GET .*/public/default/nothing answered 404"):
        pulsar_broker.layout("nothing")


def rows(broker: PulsarBroker, topic: str) -> list[bytes | None]:
    with PulsarClient(broker.url) as client:
        (segment,) = client.layout(topic).active
        return [message.value for message in messages_of(client, segment.name)]


def send(broker: PulsarBroker, topic: str, value: bytes) -> None:
    with PulsarClient(broker.url) as client, Producer(client, client.layout(topic).active[0].name) as producer:
        producer.send([Message(value)])


@pytest.mark.slow
def test_rows_outlive_a_kill_and_a_restart_and_the_end_leaves_no_process(tmp_path: Path) -> None:
    """The test starts a broker of its own. It runs beside the broker of the fixture, if other tests have started that one."""
    with PulsarBroker(tmp_path) as broker:
        topic = broker.create("kept")
        send(broker, topic, b"first")
        broker.kill()
        assert not broker.running
        broker.start()
        send(broker, topic, b"second")
        broker.restart()
        assert rows(broker, topic) == [b"first", b"second"]
        assert [one for one in processes() if str(tmp_path) in " ".join(one.command())]
    assert [one for one in processes() if str(tmp_path) in " ".join(one.command())] == []


@pytest.mark.slow
def test_the_command_runs_a_broker_until_it_is_told_to_end(tmp_path: Path) -> None:
    port, web_port = free_ports(2)
    command = [sys.executable, "-c", "from conformance.cli_pulsar import app; app()", "start", "--data", str(tmp_path / "data")]
    with Session([*command, "--port", str(port), "--web-port", str(web_port)], tmp_path / "out") as session:
        deadline = time.monotonic() + 240
        while "serves on" not in (said := session.tail()) and session.running() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert f"Pulsar serves on pulsar://127.0.0.1:{port}, its REST interface on http://127.0.0.1:{web_port};" in said
        os.kill(session.pid, signal.SIGTERM)
        assert session.wait(30) == 0
    assert [one for one in processes() if str(tmp_path) in " ".join(one.command())] == []
