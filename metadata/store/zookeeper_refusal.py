"""Errors by which ZooKeeper says that it does not let us in, and what they mean for the credentials that we have."""

from __future__ import annotations

from typing import Final

from kazoo.exceptions import AuthFailedError, InvalidACLError, KazooException, NoAuthError, SessionClosedRequireSaslError

from metadata.common.errors import ConfigurationError
from metadata.store.zookeeper_credentials import DIGEST, PREFIX, SASL_MECHANISM, SASL_PASSWORD, SASL_USERNAME, Credentials

REFUSED: Final = (NoAuthError, AuthFailedError, InvalidACLError, SessionClosedRequireSaslError)


def refusal(error: KazooException, hosts: str, credentials: Credentials, *, no_sasl: bool) -> ConfigurationError:
    """The error to raise for one of `REFUSED`. `no_sasl`: whether the server was found to do no SASL."""
    given, here = " and ".join(credentials.given), f"ZooKeeper at {hosts}"
    if no_sasl:
        return ConfigurationError(
            f"{here} does no SASL, so the credentials of {PREFIX}SASL_* are worth nothing there.",
            advice=f"Unset {PREFIX}SASL_*, or name a JAAS file to the servers (java.security.auth.login.config).",
        )
    if isinstance(error, AuthFailedError):
        which = f"{SASL_USERNAME} and {SASL_PASSWORD}" if credentials.sasl else given
        return ConfigurationError(
            f"{here} does not take the credentials of {which}: wrong name or password.",
            advice="Correct them; for SASL they are in the servers' JAAS file.",
        )
    if isinstance(error, InvalidACLError):
        return ConfigurationError(
            f"{here} knows nobody by the credentials of {given}, so that records would belong to nobody.",
            advice="For SASL the servers need authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider, for a "
            f"certificate ssl.clientAuth=need; or set {DIGEST}=digest:user:password besides.",
        )
    if isinstance(error, SessionClosedRequireSaslError):
        return ConfigurationError(
            f"{here} wants credentials by SASL.", advice=f"Set {SASL_MECHANISM}, {SASL_USERNAME} and {SASL_PASSWORD}."
        )
    return ConfigurationError(
        f"{here} does not let us in: what is there belongs to somebody else than the credentials of {given}."
        if given
        else f"{here} does not let us in: what is there belongs to somebody, and no credentials are set.",
        advice=f"Set {DIGEST}=digest:user:password, {PREFIX}SASL_* or {PREFIX}TLS_* as the cluster was made with.",
    )
