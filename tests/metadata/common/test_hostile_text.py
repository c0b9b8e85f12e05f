"""Hostile names, options and URLs raise product errors only, and no output has a control sequence (issue 13, item 24)."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ledgers.errors import StorageError, TxnSegmentError
from ledgers.plain_text import HARMFUL, harmful, shown
from ledgers.storage import LedgerStorage
from metadata.common.errors import ConfigurationError, OptionError
from metadata.common.service import parse_service_url
from metadata.read.selection import Pattern, selection_of
from metadata.records import paths
from metadata.records.names import MAX_WORD, TopicName, any_topic_name, check_new, persistent_name, segment_name, topic_name
from metadata.records.patterns import MAX_LENGTH, compiled
from metadata.store import open_store
from metadata.store.contract import ABSENT, decide, look
from metadata.topics.subscriptions import checked
from spark_txn_source.offsets import offset_of, planned_selection
from spark_txn_source.option_table import SOURCE
from txnsegment import connect
from txnsegment.cli.app import build
from txnsegment.cli.shown import PlainFormatter, as_json_text

HARMFUL_ONES = [
    "\x00",
    "\x07",
    "\x1b",
    "\x7f",
    "\x85",
    "\x9b",
    "\u200e",
    "\u200f",
    "\u202a",
    "\u202e",
    "\u2066",
    "\u2069",
    "\ufeff",
]
HALF = "\udcff"
"""The character that Python decodes from the byte 0xff in a command-line argument."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    with connect(f"file://{tmp_path}/c") as cluster:
        return str(cluster.url)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", HARMFUL_ONES, ids=ascii)
def test_a_new_topic_subscription_or_application_has_no_control_or_mark_of_direction(url: str, char: str) -> None:
    with connect(url) as cluster:
        for name in (f"a{char}b", f"topic://a{char}/b/c", f"topic://a/b{char}/c", f"persistent://a/b/c{char}"):
            with pytest.raises(OptionError) as raised:
                cluster.topics.create(name)
            assert not HARMFUL.search(str(raised.value))
        with pytest.raises(OptionError):
            cluster.retention.set(f"namespace://a/b{char}", keep=timedelta(hours=1))
        with pytest.raises(OptionError):
            cluster.begin(app=f"a{char}b", version=1)
        assert cluster.topics.list() == []
    with pytest.raises(OptionError):
        checked(f"a{char}b")


@pytest.mark.parametrize("read", [topic_name, persistent_name, segment_name, any_topic_name, checked])
def test_a_name_that_is_not_utf_8_is_an_option_error(read: Any) -> None:
    for name in (HALF, f"topic://a/b/{HALF}", f"persistent://a/b/{HALF}", f"segment://a/b/{HALF}/0000-ffff-0"):
        with pytest.raises(OptionError) as raised:
            read(name)
        str(raised.value).encode()


def test_a_name_that_is_too_long_is_an_option_error() -> None:
    check_new(TopicName("a", "b", "x" * MAX_WORD))
    with pytest.raises(OptionError, match="256 characters"):
        check_new(TopicName("a", "b", "x" * (MAX_WORD + 1)))


OLD = "t\x1b[2J\u202e\x00"
"""A name that earlier versions accepted."""


def made_by_an_earlier_version(url: str) -> None:
    """Write a topic of the name OLD, which this version refuses to create, into the store."""
    with connect(url) as cluster:
        cluster.topics.create("t")
    store = open_store(url)
    record = look(store, paths.topic(topic_name("t")))
    assert record is not None
    key = paths.topic(topic_name(OLD))
    decide(store, lambda view: store.put(key, record.value, expect=ABSENT))
    store.close()


def test_a_topic_of_an_earlier_version_is_shown_escaped_and_can_be_deleted(url: str, tmp_path: Path) -> None:
    made_by_an_earlier_version(url)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(build(), [*arguments, "--service-url", url])
        assert done.exit_code == 0, done.output
        assert not HARMFUL.search(done.output.replace("\n", "")), ascii(done.output)
        return done.output

    assert r"t\x1b[2J\u202e\x00" in run("topics", "list")
    assert r"\x1b" in run("topics", "describe", OLD)
    assert r"\x1b" in run("segments", "show", OLD)
    run("topics", "split", OLD, "--segment", "0")
    assert r"\x1b" in run("topics", "describe", OLD)  # the topic has been split, so the output has the segment tree, too
    run("topics", "describe", OLD, "--svg", str(tmp_path / "topic.svg"))
    assert not HARMFUL.search((tmp_path / "topic.svg").read_text(encoding="utf-8").replace("\n", ""))
    (found,) = [topic for topic in json.loads(run("topics", "list", "--json")) if topic["name"] != "topic://public/default/t"]
    assert found["name"] == f"topic://public/default/{OLD}"
    run("topics", "delete", OLD, "--yes")
    assert r"\x1b" not in run("topics", "list")


def test_errors_and_logs_contain_no_terminal_control_sequences() -> None:
    error = TxnSegmentError("The column a\x1b[2J\u202e.\nNext line", advice="Rename \x9b.")
    assert str(error) == "The column a\\x1b[2J\\u202e.\nNext line Rename \\x9b."
    record = logging.LogRecord("txnsegment", logging.WARNING, "", 0, "topic %s", ("a\x1b\u202eb",), None)
    assert PlainFormatter("%(message)s").format(record) == r"topic a\x1b\u202eb"


@given(st.text())
@example("a\ud800\x1b\n\u2028")
def test_text_is_shown_without_control_characters(text: str) -> None:
    found = shown(text)
    assert harmful(found) is None
    assert shown(found) == found
    assert json.loads(as_json_text({text: [text]})) == {text: [text]}
    assert harmful(as_json_text({text: [text]})) is None


# --- patterns ---------------------------------------------------------------------------------------------------------

NO_PATTERNS = {
    "nested": "(a+)+b",
    "nested twice": "((a*)*)*b",
    "choice repeated": "(a|a)*b",
    "choice inside repeated": "(x(a|aa))+b",
    "optional repeated": "(a?){50}b",
    "counted": "(a{1,50}){1,50}b",
    "many stars": ".*" * 40 + "b",
    "many optionals": "a?" * 60 + "a" * 60,
    "many choices": "(a|aa)" * 40 + "b",
    "lazy": "(a+?)+?b",
    "lookahead": "(?=(a+)+b).*",
    "named": "(?P<x>a+)+b",
    "class in group": "([ab)]+)*c",
    "too long": "a" * (MAX_LENGTH + 1),
    "unclosed": "(",
    "parentheses": "(" * 900,
    "closed parentheses": "(" * 450 + ")" * 450,
    "count of 10**20": "a{99999999999999999999}",
    "bad escape": "\\",
}


@pytest.mark.parametrize("pattern", NO_PATTERNS.values(), ids=NO_PATTERNS)
def test_a_pattern_with_unbounded_matching_time_is_an_option_error(pattern: str) -> None:
    begun = time.process_time()
    uses = [
        lambda: compiled(pattern),
        lambda: SOURCE.read({"topicsPattern": pattern}, streaming=True),
        lambda: Pattern(pattern).matches(topic_name("a" * 40)),
        lambda: selection_of({"pattern": pattern}),
    ]
    for use in uses:
        if pattern != NO_PATTERNS["closed parentheses"]:
            with pytest.raises(OptionError) as raised:
                use()
            assert len(str(raised.value)) < 1000
        else:
            with contextlib.suppress(OptionError):
                use()
    assert time.process_time() - begun < 2


PATTERNS = [
    r"topic://public/default/flights-.*",
    r"(topic|persistent)://[^/]+/[^/]+/(a|b|c)-[0-9]{4}-.*",
    r"(?i)topic://.*/x+",
    r"(?:topic)://public/(?!test)[^/]*/.*",
    r"topic://public/default/(?P<name>[a-z]+)-(?P=name)",
    r"topic://public/default/[][(*+?|]+",
    r"topic://public/default/\(a\|b\)\+",
    r"(abc)+",
    r"a{b",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_names_match_as_in_python(pattern: str) -> None:
    assert compiled(pattern) == re.compile(pattern)


@given(st.text("ab(|)*+?{}2,[]^\\.", max_size=12))
@settings(max_examples=200)
@example("(a|b|ab)*c")
def test_an_accepted_pattern_matches_in_bounded_time(pattern: str) -> None:
    with contextlib.suppress(OptionError):
        found = compiled(pattern)
        begun = time.process_time()
        found.fullmatch("ab" * 12 + "c")
        assert time.process_time() - begun < 1


# --- URLs -------------------------------------------------------------------------------------------------------------

URLS = [
    "http://[",
    "file://[",
    "file://[::1/x",
    "zk://[",
    "zk://h:99999/x",
    "zk://h:-1/x",
    "s3://[bucket",
    "hdfs://h:99999/x",
    "hdfs://h:port/x",
    "file:///a%00b",
    "file:///a%1bb",
    "file:///a\x00b",
    "file:///%ff",
    "file://h\u2100/x",
    "memory://",
    "x://[",
    "://",
    "",
    "\x00",
    f"file:///{HALF}",
    f"zk://h:2181/{HALF}",
    f"memory://{HALF}",
    "zk://h:2181/a\x1bb",
    "zk://h:2181/a\u202eb",
]


@pytest.mark.parametrize("url", URLS, ids=ascii)
def test_a_malformed_url_raises_a_product_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXNSEGMENT_SERVICE_URL", raising=False)
    with pytest.raises(ConfigurationError) as raised:
        connect(url)
    assert not HARMFUL.search(str(raised.value))


@pytest.mark.parametrize("uri", [*URLS, "/a\x00b", f"/{HALF}"], ids=ascii)
def test_a_malformed_ledger_uri_is_a_storage_error(uri: str) -> None:
    with pytest.raises(StorageError):
        next(iter(LedgerStorage(uri).list("")), None)


@given(
    st.text("/:[]@%0\x00\x1b1sfile.zkhdps3?#" + HALF, max_size=14),
    st.sampled_from(["", "file:///", "zk://", "s3://", "hdfs://", "x://"]),
)
@settings(max_examples=200)
def test_random_urls_are_read_or_refused(text: str, scheme: str) -> None:
    with contextlib.suppress(OptionError):
        parse_service_url("x", scheme + text)
    with contextlib.suppress(StorageError):
        LedgerStorage(scheme + text)


# --- options and offsets ----------------------------------------------------------------------------------------------

DEEP = [
    "[" * 100_000,
    '["a",' + "[" * 900 + "]" * 901,
    '{"log":' + "[" * 5000,
    '{"log":1e9999999}',
    '{"log":' + "9" * 5000 + "}",
    '["\\ud800"]',
]


@pytest.mark.parametrize("name", [option.name for option in SOURCE.options] + ["paths"])
@pytest.mark.parametrize(
    "text", [*DEEP, "\x00", HALF, "9" * 5000, "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"], ids=lambda t: ascii(t[:12])
)
def test_an_option_of_hostile_text_is_an_option_error_or_a_value(name: str, text: str) -> None:
    begun = time.process_time()
    said = ""
    try:
        SOURCE.read({name: text}, streaming=None)
    except OptionError as error:
        said = str(error)
    assert len(said) < 2000
    assert not HARMFUL.search(said)
    assert time.process_time() - begun < 1


OFFSETS: list[Any] = [
    [],
    None,
    {"log": -1},
    {"log": 2**63},
    {"log": True},
    {"log": 1, "acked": {"a": 5}},
    {"log": 1, "acked": {"a": [5]}},
    {"log": 1, "acked": []},
    {"log": 1, "from": {"a": "b"}},
    {"log": 1, "from": []},
    {"log": 1, "persistent://a/b/c": 7},
    {"log": 1, "persistent://a/b/c": "9" * 30 + ":0"},
    {"log": 1, "initial": "yes"},
    {"log": 1, "began": 7},
    {"log": 1, "acked": {"a": ["9" * 5000]}},
    {"log": 1, "acked": {"a": ["2..1"]}},
    {"log": 1, "read": {"pattern": "(a+)+"}},
    {"log": 1, "read": [HALF]},
    {"log": 1, "read": [7]},
    {"log": 1, "read": 7},
]


@pytest.mark.parametrize("offset", OFFSETS, ids=lambda o: ascii(o)[:40])
def test_a_foreign_offset_raises_a_product_error(offset: Any) -> None:
    with pytest.raises(TxnSegmentError):  # noqa: PT012
        found = offset_of(offset)
        found.done()
        planned_selection(offset, Pattern("x"))
