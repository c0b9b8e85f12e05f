"""The errors by which ZooKeeper refuses access. Each becomes a ConfigurationError with advice on the credentials."""

from __future__ import annotations

from typing import Final

from kazoo.exceptions import AuthFailedError, InvalidACLError, KazooException, NoAuthError, SessionClosedRequireSaslError

from metadata.common.errors import ConfigurationError
from metadata.store.zookeeper_credentials import DIGEST, PREFIX, SASL_MECHANISM, SASL_PASSWORD, SASL_USERNAME, Credentials

REFUSED: Final = (NoAuthError, AuthFailedError, InvalidACLError, SessionClosedRequireSaslError)


def refusal(error: KazooException, hosts: str, credentials: Credentials, *, no_sasl: bool) -> ConfigurationError:
    """Build the error to raise for one of `REFUSED`. `no_sasl`: the server is known not to support SASL."""
    given, here = " and ".join(credentials.given), f"ZooKeeper at {hosts}"
    if no_sasl:
        return ConfigurationError(
            f"{here} does not support SASL, so it ignores the credentials of {PREFIX}SASL_*.",
            advice=f"Unset {PREFIX}SASL_*, or name a JAAS file to the servers (java.security.auth.login.config).",
        )
    if isinstance(error, AuthFailedError):
        which = f"{SASL_USERNAME} and {SASL_PASSWORD}" if credentials.sasl else given
        return ConfigurationError(
            f"{here} does not accept the credentials of {which}: wrong name or password.",
            advice="Correct them; for SASL they are in the servers' JAAS file.",
        )
    if isinstance(error, InvalidACLError):
        return ConfigurationError(
            f"{here} authenticates no user by the credentials of {given}, so records would have no owner.",
            advice="For SASL the servers need authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider, for a "
            f"certificate ssl.clientAuth=need; or set {DIGEST}=digest:user:password besides.",
        )
    if isinstance(error, SessionClosedRequireSaslError):
        return ConfigurationError(
            f"{here} requires credentials by SASL.", advice=f"Set {SASL_MECHANISM}, {SASL_USERNAME} and {SASL_PASSWORD}."
        )
    return ConfigurationError(
        f"{here} refuses access: its znodes belong to another user than the one of {given}."
        if given
        else f"{here} refuses access: its znodes belong to a user, and no credentials are set.",
        advice=f"Set {DIGEST}=digest:user:password, {PREFIX}SASL_* or {PREFIX}TLS_* as the cluster was made with.",
    )
