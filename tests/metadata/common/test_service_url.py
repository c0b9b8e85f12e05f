"""Service URLs. All spellings of a URL become the same canonical URL. Credentials are refused and never shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow.fs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metadata.common.errors import OptionError
from metadata.common.service import VARIABLE, embedded_ledgers, parse_service_url, service_url, text_given
from metadata.store import folder_of


@pytest.mark.parametrize(
    ("text", "scheme", "path", "hosts", "canonical"),
    [
        ("file:///data/x", "file", "/data/x", (), "file:///data/x"),
        (" FILE:///data//x/../y/ ", "file", "/data/y", (), "file:///data/y"),
        ("file:///a b/%C3%A9~", "file", "/a b/é~", (), "file:///a%20b/%C3%A9~"),
        ("file:///a&b;c=1", "file", "/a&b;c=1", (), "file:///a%26b%3Bc=1"),
        ("file:///home/me@work/x", "file", "/home/me@work/x", (), "file:///home/me@work/x"),
        ("zk://h:1", "zk", "", ("h:1",), "zk://h:1"),
        ("zk://h/", "zk", "", ("h:2181",), "zk://h:2181"),
        ("zk://h1:1,h2:2/a/b/", "zk", "/a/b", ("h1:1", "h2:2"), "zk://h1:1,h2:2/a/b"),
        ("zk://[::1]:5/c", "zk", "/c", ("[::1]:5",), "zk://[::1]:5/c"),
        ("memory://t-1", "memory", "t-1", (), "memory://t-1"),
        ("Oxia://host:6648/default", "oxia", "host:6648/default", (), "oxia://host:6648/default"),
    ],
)
def test_valid_service_urls_are_parsed(text: str, scheme: str, path: str, hosts: tuple[str, ...], canonical: str) -> None:
    url = parse_service_url("The option serviceUrl", text)
    assert (url.scheme, url.path, url.hosts, str(url)) == (scheme, path, hosts, canonical)
    assert parse_service_url("again", str(url)) == url == pickle.loads(pickle.dumps(url))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("file://data/x", "not absolute; file:///data/x"),
        ("file://./x", "not absolute; three slashes"),
        ("file://../x", "not absolute; three slashes"),
        ("file://~/x", "not absolute; three slashes"),
        ("file://localhost/x", "names no host; three slashes"),
        ("file:/data/x", "too few slashes; file:///data/x"),
        ("file:data", "not absolute"),
        ("/data/x", "no scheme; Write file:///data/x"),
        ("./x", "not absolute"),
        ("host:2181", "no scheme; zk://host:2181/chroot"),
        ("file:///", "root of the file system"),
        ("file:///x?mode=ro", "%3F"),
        ("file:///x#y", "%23"),
        ("file:///%ff", "UTF-8"),
        ("file:///a%00b", "control character"),
        ("file:///a\nb", "control character"),
        ("zk://", "not host:port; zk://host:2181/chroot"),
        ("zk:///chroot", "not host:port"),
        ("zk://a b:1/c", "not host:port"),
        ("zk://h:1,,g:2/c", "not host:port"),
        ("zk://h:x/c", "not host:port"),
        ("zk://h:0/c", "0 is not a port"),
        ("zk://h:65536/c", "65536 is not a port"),
        ("zk://h:1,h:1/c", "twice"),
        ("zk://h:1/a//b", "chroot"),
        ("zk://h:1/a/../b", "chroot"),
        ("zk://h:1/zookeeper/x", "ZooKeeper's own"),
        ("memory://", "needs a name"),
        ("memory://a/b", "needs a name"),
        ("oxia://", "nothing follows oxia://"),
    ],
)
def test_invalid_service_urls_are_refused(text: str, words: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_service_url("The option serviceUrl", text)
    assert "The option serviceUrl" in str(error.value)
    for word in words.split("; "):
        assert word in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "zk://user:hunter2@h:2181/c",
        "zk://h:2181,user:hunter2@g:2181/c",
        "zk://user:hunter2/x@h:2181/c",
        "file://user:hunter2@/data",
        "file://user:hunter2/@data",
        "user:hunter2@h:2181",
        "file:user:hunter2@h",
        "other://user:hunter2@h/c",
        "other://h/c?password=hunter2",
        "zk://h:1/c?auth=digest:hunter2",
        "other://h/c;token=hunter2",
    ],
)
def test_credentials_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_service_url("The option serviceUrl", text)
    assert "hunter2" not in str(error.value) + repr(error.value)
    assert "not shown here" in str(error.value)


def test_the_option_wins_over_the_environment() -> None:
    given_url = parse_service_url("x", "memory://a")
    assert service_url(given_url, {VARIABLE: "memory://b"}) == given_url
    assert str(service_url(None, {VARIABLE: "memory://b"})) == "memory://b"


@pytest.mark.parametrize(
    ("options", "environment", "text"),
    [
        ({"serviceURL": "pulsar://h"}, {}, "pulsar://h"),
        ({"SERVICEURL": "file:///x"}, {VARIABLE: "pulsar://h"}, "file:///x"),
        ({"serviceUrl": ""}, {VARIABLE: "pulsar://h"}, "pulsar://h"),
        ({}, {VARIABLE: "pulsar://h"}, "pulsar://h"),
        ({}, {}, ""),
    ],
)
def test_the_text_of_the_url_is_that_of_the_option_or_of_the_environment(
    options: dict[str, str], environment: dict[str, str], text: str
) -> None:
    assert text_given(options, environment) == text


@pytest.mark.parametrize("environment", [{}, {VARIABLE: " "}])
def test_a_missing_url_names_both_ways(environment: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"serviceUrl.*TXNSEGMENT_SERVICE_URL"):
        service_url(None, environment)


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(OptionError, match=r"environment variable TXNSEGMENT_SERVICE_URL is '/x'.*file:///x"):
        service_url(None, {VARIABLE: "/x"})


def test_ledgers_of_an_embedded_cluster() -> None:
    assert embedded_ledgers(parse_service_url("x", "file:///a b/c/")) == "file:///a%20b/c/ledgers"
    with pytest.raises(OptionError, match="txnsegment init zk://h:1/c --ledgers URI"):
        embedded_ledgers(parse_service_url("x", "zk://h:1/c"))


@example("&key=1")
@given(st.text(st.characters(min_codepoint=32, exclude_characters="/\x7f", exclude_categories=["Cs", "Cc"]), min_size=1))
def test_every_folder_has_a_url_that_resolves_to_the_folder(name: str) -> None:
    folder = Path("/data") / ("x" + name)
    url = parse_service_url("x", folder.as_uri())
    assert url.path == str(folder)
    assert parse_service_url("x", str(url)) == url
    assert folder_of(str(url)) == str(folder)
    assert pyarrow.fs.FileSystem.from_uri(embedded_ledgers(url))[1] == f"{folder}/ledgers"
