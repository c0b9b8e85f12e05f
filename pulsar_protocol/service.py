"""The parts of a Pulsar service URL, such as `pulsar://host1:6650,host2:6650` or `pulsar+ssl://host:6651`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pulsar_protocol.errors import PulsarError
from pulsar_protocol.schemes import SCHEMES, scheme_of

_HOST: Final = re.compile(r"[\w.-]+|\[[0-9a-fA-F:.]+(%[\w.-]+)?\]")


class BadUrl(PulsarError):
    """A service URL is not one of Pulsar's binary protocol."""


@dataclass(frozen=True)
class Service:
    """The brokers or proxies of a URL. `tls`: whether connections are encrypted. `hosts`: each host with its port, at least one."""

    tls: bool
    hosts: tuple[tuple[str, int], ...]

    @staticmethod
    def parse(url: str) -> Service:
        """Return the parts of a service URL. Raises BadUrl, whose text leaves out what may be a password or a token."""
        if "@" in url or "?" in url:
            raise BadUrl(
                "A Pulsar service URL has no user, password, token or parameters, but this one has.",
                advice="Give pulsar://host:6650, and credentials in the environment (TXNSEGMENT_PULSAR_TOKEN, ..).",
            )
        scheme, rest = scheme_of(url), url.strip().partition("://")[2]
        hosts = [_host(one, SCHEMES[scheme], url) for one in rest.rstrip("/").split(",")] if scheme in SCHEMES else []
        if not hosts:
            raise BadUrl(f"{url} is no Pulsar service URL.", advice="Give pulsar://host:6650 or pulsar+ssl://host:6651.")
        return Service(scheme.endswith("+ssl"), tuple(hosts))


def _host(text: str, default: int, url: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":") if text.rpartition(":")[2].isdigit() else (text, "", "")
    if _HOST.fullmatch(host) is None or (colon and not 0 < int(port) < 65536):
        raise BadUrl(f"{text!r} in {url} is no host with a port.", advice="Give pulsar://host:6650, without a path.")
    return host.strip("[]"), int(port) if colon else default
