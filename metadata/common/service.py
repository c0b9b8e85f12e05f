"""The service URL, which locates a cluster (docs/options.md; protocol.md section 3)."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from ledgers.credentials import has_password, names_a_credential, shown
from ledgers.plain_text import harmful
from metadata.common.errors import OptionError
from metadata.common.options import CREDENTIALS_ADVICE, Option

VARIABLE: Final = "TXNSEGMENT_SERVICE_URL"
ZOOKEEPER_PORT: Final = 2181
_ZK_EXAMPLE: Final = "Write zk://host:2181/chroot, or zk://h1:2181,h2:2181/chroot."
_ANY_EXAMPLE: Final = "Give file:///path, zk://host:2181/chroot, or pulsar://host:6650 for a Pulsar cluster."
_FILE_EXAMPLE: Final = "Write three slashes and an absolute path: file:///data/txnsegment."


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """A service URL in normal form, so that equal clusters have equal URLs. It holds no credentials.

    text    the URL; `str()` returns it
    scheme  `file`, `zk`, `memory`, or the scheme of a store from a third party, in lower case
    path    file: the absolute folder, decoded, without a trailing `/`. zk: the chroot (`/a/b`, or empty). memory: the name. Others:
            the text after `scheme://`
    hosts   zk: `host:port` of each server, in the given order; others: empty
    """

    text: str
    scheme: str
    path: str
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def parse_service_url(name: str, text: str) -> ServiceUrl:
    """Parse `file:///path`, `zk://h:p[,h:p]/chroot` or `memory://name`; URLs of other schemes are kept as they are. Raises
    OptionError.

    `name`: the option or variable that holds the URL, for errors. An error never shows a value that contains `@`.
    """
    text = text.strip()
    if not text:
        raise OptionError(f"{name} is empty.", advice=_ANY_EXAMPLE)
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", text, re.DOTALL)
    authority = (found[2] if found else text).split("/", 1)[0]
    if "@" in (text if found and found[1].lower() != "file" else authority) or has_password(text):
        raise OptionError(f"{name} holds a user or a password before an '@' (not shown here).", advice=CREDENTIALS_ADVICE)
    if names_a_credential(text):
        raise OptionError(f"{name} holds a credential after its path (not shown here).", advice=CREDENTIALS_ADVICE)
    if harmful(text):
        raise _bad(name, text, "it holds a control character, a mark of direction, or is not UTF-8", "Remove it.")
    if not found:
        raise _without_scheme(name, text)
    scheme, rest = found[1].lower(), found[2]
    match scheme:
        case "file":
            return _file(name, text, rest)
        case "zk":
            return _zookeeper(name, text, rest)
        case "memory":
            if not re.fullmatch(r"[A-Za-z0-9._-]+", rest):
                raise _bad(name, text, "it needs a name of letters, digits, '.', '_' and '-'", "Write memory://test.")
            return ServiceUrl(f"memory://{rest}", scheme, rest)
    if not rest:
        raise _bad(name, text, f"nothing follows {scheme}://", _ANY_EXAMPLE)
    return ServiceUrl(f"{scheme}://{rest}", scheme, rest)


def service_url(given: ServiceUrl | None, environment: Mapping[str, str] = os.environ) -> ServiceUrl:
    """Return `given`, the value of the option `serviceUrl`. If the option is not given, return the URL in the environment variable
    TXNSEGMENT_SERVICE_URL. Raises OptionError if both are missing.
    """
    if given is not None:
        return given
    text = environment.get(VARIABLE, "")
    if not text.strip():
        raise OptionError(
            "No service URL is configured.",
            advice='Give .option("serviceUrl", "file:///path"), "zk://host:2181/chroot" or "pulsar://host:6650" (the argument of '
            f"connect, --service-url of commands), or start Spark's driver with the environment variable {VARIABLE}.",
        )
    return parse_service_url(f"The environment variable {VARIABLE}", text)


def text_given(options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> str:
    """Return the service URL of the options of a read or write as it was given, or else that of the environment variable. Empty if
    neither has one. The names of options are in any case.
    """
    return {name.lower(): text for name, text in options.items()}.get(SERVICE_URL.name.lower()) or environment.get(VARIABLE, "")


def embedded_ledgers(url: ServiceUrl) -> str:
    """Return the URI of an embedded cluster's ledger folder: `file:///path/ledgers`. Raises OptionError for other schemes."""
    if url.scheme != "file":
        raise OptionError(
            f"The URL {url} does not determine where the ledgers of its cluster are.",
            advice=f"Create the cluster once with: txnsegment init {url} --ledgers URI.",
        )
    return f"{url.text}/ledgers"


SERVICE_URL: Final = Option(
    "serviceUrl",
    "`file:///path`, `zk://h:p[,h:p]/chroot`",
    "The cluster. `file:` is embedded: SQLite and ledgers in that folder, created on first use. Credentials are refused.",
    lambda name, text: parse_service_url(f"The option {name}", text),
    default_note=f"the variable `{VARIABLE}` in the environment of the driver's JVM",
)


def _file(name: str, text: str, rest: str) -> ServiceUrl:
    if not rest.startswith("/"):
        right = "file:///" + rest.removeprefix("./") if rest and not rest.startswith(("localhost/", "~", "../")) else ""
        advice = f"{_FILE_EXAMPLE} (Did you mean {right}?)" if right else _FILE_EXAMPLE
        raise _bad(name, text, "its path is not absolute, and a file URL names no host", advice)
    if "?" in rest or "#" in rest:
        raise _bad(name, text, "a file URL has no '?' and no '#'", "In the name of a folder write them as %3F and %23.")
    try:
        decoded = unquote_to_bytes(rest).decode()
    except UnicodeDecodeError:
        raise _bad(name, text, "its percent-encoding is not UTF-8", _FILE_EXAMPLE) from None
    if harmful(decoded):
        raise _bad(name, text, "it holds a control character", "Remove it.")
    path = "/" + posixpath.normpath(decoded).lstrip("/")
    if path == "/":
        raise _bad(name, text, "it names the root of the file system", "Name a folder: file:///data/txnsegment.")
    # `&` and `;` stay encoded, because text after an unencoded `&` or `;` counts as a parameter, and `&key=` as a credential.
    return ServiceUrl("file://" + quote(path, safe="/:@!$'()*+,=~"), "file", path)


def _zookeeper(name: str, text: str, rest: str) -> ServiceUrl:
    servers, _, chroot = rest.partition("/")
    hosts = tuple(_host(name, text, server.strip()) for server in servers.split(","))
    if len(set(hosts)) != len(hosts):
        raise _bad(name, text, "it names a server twice", _ZK_EXAMPLE)
    nodes = chroot.removesuffix("/").split("/") if chroot.removesuffix("/") else []
    if any(not re.fullmatch(r"[^\s?#%]+", node) or node in (".", "..") for node in nodes):
        raise _bad(name, text, "its chroot is not a path of plain names", _ZK_EXAMPLE)
    if nodes and nodes[0] == "zookeeper":
        raise _bad(name, text, "/zookeeper is ZooKeeper's own", "Take another chroot, such as /txnsegment.")
    path = "".join("/" + node for node in nodes)
    return ServiceUrl(f"zk://{','.join(hosts)}{path}", "zk", path, hosts)


def _host(name: str, text: str, server: str) -> str:
    found = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?", server, re.ASCII)
    if not found:
        raise _bad(name, text, f"{server!r} is not host:port", _ZK_EXAMPLE)
    port = int(found[2] or ZOOKEEPER_PORT)
    if not 1 <= port <= 65535:
        raise _bad(name, text, f"{port} is not a port", _ZK_EXAMPLE)
    return f"{found[1]}:{port}"


def _without_scheme(name: str, text: str) -> OptionError:
    if text.startswith("/"):
        return _bad(name, text, "it has no scheme", f"Write file://{text}.")
    if text.lower().startswith("file:/"):
        return _bad(name, text, "it has too few slashes", f"Write file://{text[5:]}.")
    if text.lower().startswith("file:") or text.startswith((".", "~")):
        return _bad(name, text, "its path is not absolute", _FILE_EXAMPLE)
    return _bad(name, text, "it has no scheme", _ANY_EXAMPLE)


def _bad(name: str, text: str, problem: str, advice: str) -> OptionError:
    if "@" in text:
        return OptionError(f"{name} (not shown here) cannot be used.", advice=_ANY_EXAMPLE)
    return OptionError(f"{name} is {shown(text)}: {problem}.", advice=advice)


PULSAR_URL: Final = replace(
    SERVICE_URL,
    values="`pulsar://host:6650`, `pulsar+ssl://host:6651`; several hosts as `host:port,host:port`",
    meaning="The Pulsar cluster. Credentials are refused; the environment has them.",
)
"""The option `SERVICE_URL`, with the description that the option tables for Pulsar clusters show."""
