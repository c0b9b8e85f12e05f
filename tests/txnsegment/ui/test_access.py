"""The page answers who may look: on loopback under this machine's names only, and beyond it only with the token."""

from __future__ import annotations

import pytest

from metadata.common.errors import OptionError
from txnsegment.ui.access import Gate, check_address, is_loopback

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    check_address(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example.org", "127.0.0.1.example.org"])
def test_another_address_without_a_token_is_refused(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(OptionError, match="TXNSEGMENT_UI_TOKEN"):
        Gate(host, None)
    check_address(host, TOKEN)


@pytest.mark.parametrize("token", ["", "short", "x" * 15])
def test_a_token_that_can_be_guessed_is_refused_also_on_loopback(token: str) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(OptionError, match="16"):
            Gate(host, token)


@pytest.mark.parametrize("header", ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LocalHost", "[::1]:80", "[::1]"])
def test_names_of_this_machine_are_known(header: str) -> None:
    assert Gate("127.0.0.1", None).knows_host(header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost:80:80",
        "localhost:x",
        "[::1",
        "0.0.0.0:80",
    ],
)
def test_another_name_is_not_known_on_loopback_with_or_without_a_token(header: str | None) -> None:
    assert not Gate("127.0.0.1", None).knows_host(header)
    assert not Gate("127.0.0.1", TOKEN).knows_host(header)


def test_the_address_that_was_given_is_known() -> None:
    assert Gate("127.0.0.5", None).knows_host("127.0.0.5:80")
    assert Gate("::1", None).knows_host("[::1]:80")


def test_beyond_loopback_any_name_may_reach_the_page_which_asks_for_the_token() -> None:
    gate = Gate("0.0.0.0", TOKEN)
    assert gate.knows_host("cluster.example.org")
    assert not gate.admits(None, None)


def test_the_token_and_the_cookie_that_it_gives_are_admitted_and_nothing_else_is() -> None:
    gate = Gate("0.0.0.0", TOKEN)
    session = gate.session(TOKEN)
    assert session is not None
    assert TOKEN not in session
    assert gate.admits(None, session)
    assert gate.admits(f"Bearer {TOKEN}", None)
    assert gate.admits(f"bearer  {TOKEN} ", None)
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü" * 20, "\udcff"):
        assert gate.session(wrong) is None
        assert not gate.admits(f"Bearer {wrong}", wrong)
    assert not gate.admits(f"Basic {TOKEN}", None)
    assert not gate.admits(TOKEN, TOKEN)
    assert not Gate("0.0.0.0", TOKEN).admits(None, session)  # a new start makes a new cookie


def test_without_a_token_there_is_no_session() -> None:
    gate = Gate("127.0.0.1", None)
    assert (gate.needs_token, gate.admits(None, None), gate.session("")) == (False, True, None)
