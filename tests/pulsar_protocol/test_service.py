"""A service URL names brokers, and an error names what is wrong with it."""

from __future__ import annotations

import pytest

from pulsar_protocol.schemes import is_pulsar, scheme_of
from pulsar_protocol.service import BadUrl, Service


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("pulsar://one", Service(False, (("one", 6650),))),
        ("pulsar://one:1234/", Service(False, (("one", 1234),))),
        ("pulsar://one:1,two:2", Service(False, (("one", 1), ("two", 2)))),
        ("pulsar+ssl://one", Service(True, (("one", 6651),))),
        ("pulsar://[::1]:6650", Service(False, (("::1", 6650),))),
        (" PULSAR+ssl://one:1 \n", Service(True, (("one", 1),))),
    ],
)
def test_a_url_names_its_hosts(url: str, service: Service) -> None:
    assert Service.parse(url) == service


@pytest.mark.parametrize(
    "url",
    [
        *("", "pulsar:", "http://one:8080", "pulsar://", "pulsar://one,,two", "pulsar://one:0", "pulsar://one:65536"),
        *("pulsar://user@one:6650", "pulsar://one:6650/path"),
    ],
)
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(BadUrl, match=r"pulsar://host:6650"):
        Service.parse(url)


@pytest.mark.parametrize(
    ("url", "scheme", "pulsar"),
    [
        ("pulsar://h", "pulsar", True),
        (" Pulsar+SSL://h", "pulsar+ssl", True),
        ("file:///x", "file", False),
        ("pulsar:h", "", False),
        ("", "", False),
    ],
)
def test_the_scheme_is_read_in_any_case_and_with_spaces_around(url: str, scheme: str, pulsar: bool) -> None:
    assert (scheme_of(url), is_pulsar(url)) == (scheme, pulsar)
