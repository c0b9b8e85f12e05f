"""The checks of `txnsegment doctor` for a Pulsar cluster."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial

from metadata.common.errors import TxnSegmentError
from metadata.records.names import topic_name
from pulsar_protocol import auth
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.layout import bits_of
from pulsar_protocol.rest import Rest
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from txnsegment.findings import Finding, Health, tried
from txnsegment.pulsar.topics import damaged_topics

TRIED = ("5.0.0-M1",)
"""The versions of Pulsar against which the tests of this project run."""
_NAMESPACE = "public/default"


def examine(url: str) -> Iterator[Finding]:
    """Run the checks and yield their findings. They change nothing."""
    yield tried("credentials", _credentials)
    try:
        client = auth.connect(url)
        begun = time.monotonic()
        client.channel()
    except TxnSegmentError as error:
        yield Finding("connection", Health.FAIL, error.message, error.advice)
        return
    with client:
        ms = (time.monotonic() - begun) * 1000
        how = "encrypted" if client.service.tls else "not encrypted"
        yield Finding("connection", Health.OK, f"{url} answers in {ms:.1f} ms; the connection is {how}")
        checks: list[tuple[str, Callable[[str, PulsarClient], Finding]]] = [
            ("version", _version),
            ("topics", _topics),
            ("transactions", _transactions),
        ]
        for name, check in checks:
            yield tried(name, partial(check, name, client))
    yield tried("admin", _admin)


def _credentials() -> Finding:
    found = auth.Credentials.read()
    name = "credentials"
    if found.token is not None or found.token_file is not None:
        return Finding(name, Health.OK, f"a token, from {auth.TOKEN if found.token is not None else auth.TOKEN_FILE}")
    if found.certificate is not None:
        return Finding(name, Health.OK, f"a certificate, from {auth.TLS_CERT}")
    return Finding(name, Health.OK, f"none: neither {auth.TOKEN}, {auth.TOKEN_FILE} nor {auth.TLS_CERT} is set")


def _version(name: str, client: PulsarClient) -> Finding:
    server = client.channel().ready.server
    bits = bits_of(server)
    message = f"{re.sub(r'(?<=[a-z])(?=[0-9])', ' ', server)}: keys are routed by the {bits} bits of their hash"
    if any(server.endswith(one) for one in TRIED):
        return Finding(name, Health.OK, message)
    return Finding(name, Health.WARN, message, f"Tried versions: {', '.join(TRIED)}. Try your own reads and writes first.")


def _topics(name: str, client: PulsarClient) -> Finding:
    names = client.topics(_NAMESPACE)
    damaged = damaged_topics(client, names)
    sound = [one for one in names if one not in damaged]
    own = sum(topic_name(one).name.startswith("__") for one in sound)
    message = f"scalable topics are on; {_NAMESPACE} has {len(sound) - own}, and {own} with records of txnsegment or Pulsar (__..)"
    if not damaged:
        return Finding(name, Health.OK, message)
    advice = next(iter(damaged.values())).advice
    return Finding(name, Health.WARN, f"{message}; the metadata store has only a part of: {', '.join(sorted(damaged))}", advice)


def _transactions(name: str, client: PulsarClient) -> Finding:
    count = len(client.coordinators())
    if not count:
        return Finding(name, Health.FAIL, "no transaction coordinator has a broker", "See the logs of the brokers.")
    return Finding(name, Health.OK, f"transactions are on; {count} coordinators")


def _admin() -> Finding:
    url = os.environ.get(ADMIN_VARIABLE, "").strip()
    if not url:
        return Finding(
            "admin",
            Health.WARN,
            f"{ADMIN_VARIABLE} is not set, so no topic can be created, and subscriptions cannot be listed",
            f"Set {ADMIN_VARIABLE}=http://host:8080, or give Spark writes the option adminUrl.",
        )
    version = Rest(url).ask("GET", "/admin/v2/brokers/version")
    return Finding("admin", Health.OK, f"{url} answers: {version}")
