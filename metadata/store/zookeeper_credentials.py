"""The client's identity for ZooKeeper, and the authorities that it trusts. Both come from the driver's environment, or from a file
that the environment names.

Credentials are never part of a URL or an option, because Spark shows URLs and options (docs/operations.md). `Credentials` hides its
values and cannot be pickled.
"""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from metadata.common.errors import ConfigurationError

PREFIX: Final = "TXNSEGMENT_ZK_"
FILE: Final = PREFIX + "AUTH_FILE"
DIGEST: Final = PREFIX + "AUTH"
SASL_MECHANISM, SASL_USERNAME, SASL_PASSWORD = (f"{PREFIX}SASL_{part}" for part in ("MECHANISM", "USERNAME", "PASSWORD"))
TLS_CA, TLS_CERT, TLS_KEY, TLS_KEY_PASSWORD = (f"{PREFIX}TLS_{part}" for part in ("CA", "CERT", "KEY", "KEY_PASSWORD"))
VARIABLES: Final = (
    *(FILE, DIGEST, SASL_MECHANISM, SASL_USERNAME, SASL_PASSWORD),
    *(TLS_CA, TLS_CERT, TLS_KEY, TLS_KEY_PASSWORD),
)

MECHANISMS: Final = ("DIGEST-MD5", "GSSAPI")
SYSTEM: Final = "system"
"""The value of TLS_CA with which the authorities of the operating system are trusted."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a session.

    digest  `user:password`, or None
    sasl    mechanism, username and password, as far as they are set; empty if SASL is not configured
    tls     the TLS settings; None: no TLS
    given   the names of the variables that give an identity, for errors; empty: anonymous
    """

    digest: str | None
    sasl: Mapping[str, str]
    tls: ssl.SSLContext | None
    given: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Credentials(by {', '.join(self.given) or 'nobody'}, {'TLS' if self.tls else 'no TLS'})"

    def __reduce__(self) -> NoReturn:
        raise ConfigurationError("Credentials of ZooKeeper do not leave the driver: they are not pickled.")


def credentials(environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials from the variables `VARIABLES`. A value in the environment wins over a NAME=value line of the file.

    Raises ConfigurationError, which names the variable and never shows a password.
    """
    given = {name: value for name, value in environment.items() if name.startswith(PREFIX) and value}
    settings = {**_settings_of(given[FILE]), **given} if FILE in given else given
    for name in settings:
        if name not in VARIABLES:
            raise ConfigurationError(f"There is no variable {name}.", advice=_nearest(name))
    digest, sasl = _digest(settings), _sasl(settings)
    identity = {
        DIGEST: digest,
        SASL_USERNAME if SASL_USERNAME in settings else SASL_MECHANISM: sasl,
        TLS_CERT: TLS_CERT in settings,
    }
    return Credentials(digest, sasl, _tls(settings), tuple(name for name, there in identity.items() if there))


def anonymous() -> Credentials:
    """Return credentials with the TLS settings of `credentials()` and without an identity. Raises ConfigurationError."""
    return replace(credentials(), digest=None, sasl={}, given=())


def _settings_of(file: str) -> dict[str, str]:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            f"{FILE}: {file} cannot be read: {why}.", advice="Name a file that this process may read, with lines NAME=value."
        ) from None
    settings = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or name.strip() == FILE or not name.strip().startswith(PREFIX):
            raise ConfigurationError(
                f"{FILE}: line {number} of {file} (not shown here) is not of the form {PREFIX}...=value.",
                advice=f"Write lines such as {DIGEST}=digest:user:password; lines that begin with # are comments.",
            )
        if value.strip():
            settings[name.strip()] = value.strip()
    return settings


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, VARIABLES, 1)
    return f"Did you mean {near[0]}?" if near else f"There are {', '.join(VARIABLES)}."


# --- digest and SASL ---


def _digest(settings: Mapping[str, str]) -> str | None:
    text = settings.get(DIGEST)
    if text is None:
        return None
    scheme, _, secret = text.partition(":")
    user, _, password = secret.partition(":")
    if scheme != "digest" or not user or not password:
        raise ConfigurationError(f"{DIGEST} (not shown here) is not of the form digest:user:password.", advice="Correct it.")
    return secret


def _sasl(settings: Mapping[str, str]) -> dict[str, str]:
    names = {"mechanism": SASL_MECHANISM, "username": SASL_USERNAME, "password": SASL_PASSWORD}
    options = {part: settings[name] for part, name in names.items() if name in settings}
    if not options:
        return {}
    mechanism = options.get("mechanism")
    if mechanism not in MECHANISMS:
        said = f"{SASL_MECHANISM} is {mechanism!r}" if mechanism else f"{SASL_MECHANISM} is not set"
        raise ConfigurationError(f"{said}.", advice=f"Set it to {' or '.join(MECHANISMS)}.")
    for name in (SASL_USERNAME, SASL_PASSWORD):
        if mechanism == "DIGEST-MD5" and name not in settings:
            raise ConfigurationError(f"{SASL_MECHANISM} is {mechanism}, and {name} is not set.", advice="Set it.")
        if mechanism == "GSSAPI" and name in settings:
            raise ConfigurationError(
                f"{SASL_MECHANISM} is {mechanism}, which knows no {name}.",
                advice="Unset it: the identity comes from the Kerberos ticket (kinit).",
            )
    try:
        from puresasl.mechanisms import have_kerberos
    except ImportError:
        raise ConfigurationError(
            f"{SASL_MECHANISM} is set, and SASL needs the package pure-sasl, which the extra sasl installs.",
            advice="Run: pip install 'txnsegment[sasl]'",
        ) from None
    if mechanism == "GSSAPI" and not have_kerberos:
        raise ConfigurationError(
            f"{SASL_MECHANISM} is GSSAPI, which needs the package kerberos.", advice="Run: pip install kerberos"
        )
    return options


# --- TLS ---


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    ca, cert, key = (settings.get(name) for name in (TLS_CA, TLS_CERT, TLS_KEY))
    if not any(name in settings for name in (TLS_CA, TLS_CERT, TLS_KEY, TLS_KEY_PASSWORD)):
        return None
    if ca is None:
        raise ConfigurationError(
            f"There is no {TLS_CA}, so no server would be trusted.",
            advice=f"Name a PEM file of the certificates to trust, or set it to {SYSTEM}: those that this machine trusts.",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # this protocol checks certificates and host names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca == SYSTEM:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _read(TLS_CA, ca)
        _load(f"{TLS_CA}: {ca} holds no certificate in PEM.", lambda: context.load_verify_locations(ca))
    if cert is None and (key or TLS_KEY_PASSWORD in settings):
        raise ConfigurationError(
            f"{TLS_KEY if key else TLS_KEY_PASSWORD} is set, and {TLS_CERT} is not.",
            advice="Name the key's certificate, a PEM file.",
        )
    if cert is not None:
        _load_identity(context, cert, key, settings.get(TLS_KEY_PASSWORD))
    return context


def _load_identity(context: ssl.SSLContext, cert: str, key: str | None, password: str | None) -> None:
    _read(TLS_CERT, cert)
    if key:
        _read(TLS_KEY, key)
    asked = False

    def secret() -> str:
        nonlocal asked
        asked = True
        return password or ""  # OpenSSL would wait for input at the terminal

    where = f"{TLS_KEY}: {key}" if key else f"{TLS_CERT}: {cert}, which also has to hold the key since {TLS_KEY} is not set,"
    try:
        context.load_cert_chain(cert, key, secret)
    except (ssl.SSLError, ValueError) as error:
        if asked and not password:
            raise ConfigurationError(
                f"{where} is encrypted.", advice=f"Set {TLS_KEY_PASSWORD}, in the file of {FILE} for instance."
            ) from None
        if asked:
            raise ConfigurationError(f"{where} is not opened by {TLS_KEY_PASSWORD}.", advice="Correct the password.") from None
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(f"{where} is not the key of the certificate in {cert}.", advice="Name the pair.") from None
        raise ConfigurationError(
            f"{where} or the certificate in {cert} is not in PEM.",
            advice="Name files with -----BEGIN CERTIFICATE and PRIVATE KEY-----.",
        ) from None


def _read(name: str, file: str) -> None:
    try:
        with Path(file).open("rb") as opened:
            opened.read(1)
    except FileNotFoundError:
        raise ConfigurationError(f"{name}: there is no file {file}.", advice="Name a PEM file.") from None
    except OSError as error:
        raise ConfigurationError(
            f"{name}: {file} cannot be read: {error.strerror}.", advice="Name a PEM file that this process may read."
        ) from None


def _load(problem: str, load: Any) -> None:
    try:
        load()
    except (ssl.SSLError, ValueError):
        raise ConfigurationError(problem, advice="Name a file with -----BEGIN CERTIFICATE-----.") from None
