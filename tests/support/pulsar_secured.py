"""A Pulsar broker that asks for tokens, and has an encrypted port."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conformance.ports import LOCAL, free_ports
from conformance.pulsar_server import PulsarBroker
from tests.support.certificates import Certificate, certificate

_SECRET = hashlib.sha256(b"the secret key of a broker of the tests").digest()
_TOKENS = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
SUPERUSER = "admin"


def token(role: str, secret: bytes = _SECRET, **claims: object) -> str:
    """Return a token for a role. `claims`: further claims of it, such as `exp`."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": role, **claims}]
    text = ".".join(_coded(json.dumps(part).encode()) for part in parts)
    return f"{text}.{_coded(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def _coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass(frozen=True)
class Secured:
    """The broker, the service URL of its encrypted port, and its certificate."""

    broker: PulsarBroker
    tls_url: str
    certificate: Certificate


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """Run a broker that accepts only clients with a token. The role `admin` may do everything, every other role nothing."""
    made = certificate(folder, "broker")
    (port,) = free_ports(1)
    admin = token(SUPERUSER)
    settings = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authenticationProviders": _PROVIDER,
        "tokenSecretKey": f"data:;base64,{base64.b64encode(_SECRET).decode()}",
        "superUserRoles": SUPERUSER,
        "brokerClientAuthenticationPlugin": _TOKENS,
        "brokerClientAuthenticationParameters": f"token:{admin}",
        "brokerServicePortTls": port,
        "tlsCertificateFilePath": made.file,
        "tlsKeyFilePath": made.key,
        "tlsTrustCertsFilePath": made.file,
    }
    with PulsarBroker(folder / "broker", settings=settings, token=admin) as broker:
        yield Secured(broker, f"pulsar+ssl://{LOCAL}:{port}", made)
