"""Certificates for tests of encrypted connections."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """A certificate that its own key has signed."""

    file: Path
    key: Path

    def server(self, clients: Certificate | None = None) -> ssl.SSLContext:
        """Return the context of a server. `clients`: the certificate of the only client that the server accepts; None: the server
        asks clients for no certificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients.file)
        return context

    def trusted(self) -> ssl.SSLContext:
        """Return the context of a client that trusts this certificate alone."""
        return ssl.create_default_context(cafile=str(self.file))


def certificate(folder: Path, name: str, address: str = "127.0.0.1", password: str | None = None) -> Certificate:
    """Make a certificate for an address. `password`: that of its key; None: the key has no password."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "These tests make certificates with openssl: install it (Debian, Ubuntu: apt install openssl)."
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *(["-nodes"] if password is None else [])]
    secret = [] if password is None else ["-passout", f"pass:{password}"]
    about = ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{address}"]
    files = ["-out", str(made.file), "-keyout", str(made.key)]
    subprocess.run([openssl, "req", "-x509", *curve, *secret, *about, *files], check=True, capture_output=True)
    return made
