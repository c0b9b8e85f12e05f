"""Tests of the parsers of option values: property tests, and the errors of each kind of value."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.common.errors import OptionError
from metadata.common.option_page import option_table
from metadata.common.option_times import timestamp_ms
from metadata.common.options import (
    LONG_MAX,
    Option,
    OptionTable,
    Parse,
    boolean,
    byte_size,
    integer,
    milliseconds,
    names,
    one_of,
    option_text,
    unique_pairs,
    words,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
padding = st.sampled_from(["", " ", "\t", "  "])
columns = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda t: t.strip() != "")


def refusal(parse: Parse[object], text: str) -> str:
    with pytest.raises(OptionError) as error:
        parse("theOption", text)
    assert "theOption" in error.value.message
    assert error.value.advice
    return str(error.value)


@given(st.integers(3, LONG_MAX), padding)
def test_integers(number: int, around: str) -> None:
    assert integer(3)("x", f"{around}{number}{around}") == number


@given(st.integers(max_value=2) | st.integers(LONG_MAX + 1, 10**40))
def test_integers_out_of_range(number: int) -> None:
    assert "from 3" in refusal(integer(3), str(number))


@pytest.mark.parametrize("text", ["", "x", "1.0", "1e3", "1_000", "+1", "٣", "0x10", "1 000", "true", "--1", "1" * 5000])
def test_text_that_is_no_integer_is_refused(text: str) -> None:
    message = refusal(integer(1, 9), text)
    assert "not a whole number" in message
    assert "from 1 to 9" in message
    assert len(message) < 400


@given(st.sampled_from(["true", "false"]).flatmap(lambda w: st.sampled_from([w, w.upper(), w.title(), f" {w} "])))
def test_booleans(text: str) -> None:
    assert boolean("x", text) is ("t" in text.lower())


@pytest.mark.parametrize("text", ["", "1", "0", "yes", "no", "on", "t", "truee"])
def test_text_that_is_no_boolean_is_refused(text: str) -> None:
    assert "true or false" in refusal(boolean, text)


@given(
    st.integers(1, 2**23 - 1), st.sampled_from([("", 0), ("b", 0), ("k", 1), ("kb", 1), ("m", 2), ("MB", 2), ("G", 3), ("t", 4)])
)
def test_byte_sizes(number: int, unit: tuple[str, int]) -> None:
    assert byte_size()("x", f"{number}{unit[0]}") == number * 1024 ** unit[1]


@pytest.mark.parametrize("text", ["", "m", "1.5g", "-1", "1x", "1mm", "1 m b", "1e6", "128mi"])
def test_text_that_is_no_byte_size_is_refused(text: str) -> None:
    assert "128m" in refusal(byte_size(), text)


@pytest.mark.parametrize("text", ["0", "0m", "9223372036854775808", "9999999999t"])
def test_byte_sizes_out_of_range(text: str) -> None:
    assert "bytes" in refusal(byte_size(), text)


@pytest.mark.parametrize("text", ["30s", "30000ms", "PT30S", "30.0"])
def test_durations_take_no_unit(text: str) -> None:
    assert "milliseconds" in refusal(milliseconds(1, 300_000), text)


@pytest.mark.parametrize(("text", "near"), [("zsdt", "zstd"), ("LZ5", "lz4"), ("gzip", "Did you mean"), ("", "Did you mean")])
def test_a_wrong_word_names_the_nearest(text: str, near: str) -> None:
    message = refusal(one_of("zstd", "lz4", "snappy", "none"), text)
    assert near in message
    assert "zstd, lz4, snappy, none" in message


def test_words_keep_the_documented_case() -> None:
    assert one_of("fail", "ignoreNewColumns")("x", " IGNORENEWCOLUMNS ") == "ignoreNewColumns"
    assert words("x", " a b ") == "a b"
    assert "empty" in refusal(words, "  ")


@given(st.lists(columns, min_size=1))
def test_json_lists_carry_any_name(found: list[str]) -> None:
    assert names("x", json.dumps(found)) == tuple(found)
    assert names("x", option_text("x", found)) == tuple(found)


@given(st.lists(st.from_regex(r"[a-z0-9_. ]*[a-z0-9]", fullmatch=True), min_size=1), padding)
def test_comma_lists(found: list[str], around: str) -> None:
    assert names("x", f"{around},{around}".join(found)) == tuple(n.strip() for n in found)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("a,,b", "empty"),
        ("a,", "empty"),
        ("[]", "empty"),
        ('["a", ""]', "empty"),
        ("[a]", "JSON list"),
        ("[1]", "texts"),
    ],
)
def test_text_that_is_no_list_is_refused(text: str, word: str) -> None:
    assert word in refusal(names, text)


@given(st.integers(0, 253_402_300_799_999).filter(lambda ms: len(str(ms)) != 10))
def test_epoch_milliseconds(ms: int) -> None:
    assert timestamp_ms(up=True)("x", str(ms)) == timestamp_ms(up=False)("x", f" {ms} ") == ms


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
    st.integers(0, 999),
    st.sampled_from("T t"),
)
def test_iso_timestamps(naive: datetime, offset: int, nanoseconds: int, between: str) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=offset)))
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    text = f"{naive:%Y-%m-%d}{between}{naive:%H:%M:%S}.{naive.microsecond:06d}{nanoseconds:03d}{zone}"
    total = (moment - EPOCH) // timedelta(microseconds=1) * 1000 + nanoseconds
    assert timestamp_ms(up=False)("x", text) == total // 1_000_000
    assert timestamp_ms(up=True)("x", text) == -(-total // 1_000_000)


@pytest.mark.parametrize(
    "text", ["2025-01-01T00:00:00Z", "2025-01-01 00:00z", "2025-01-01T01:00:00+01", "2024-12-31T18:00:00.000-0600"]
)
def test_spellings_of_one_moment(text: str) -> None:
    assert timestamp_ms(up=True)("x", text) == 1_735_689_600_000


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("2025-01-01T00:00:00", "no time zone"),
        ("2025-01-01 00:00", "2025-01-01 00:00Z"),
        ("2025-01-01", "not a timestamp"),
        ("2025-13-01T00:00:00Z", "month"),
        ("2025-01-01T25:00:00Z", "hour"),
        ("2025-01-01T00:00:00+99:00", "not a timestamp"),
        ("yesterday", "ISO-8601"),
        ("", "ISO-8601"),
        ("-1", "ISO-8601"),
        ("1.5", "ISO-8601"),
        ("1735689600", "1735689600000"),
        ("1735689600000000", "1970 to 9999"),
        ("9223372036854775807", "1970 to 9999"),
        ("1969-12-31T23:59:59Z", "1970 to 9999"),
        ("0001-01-01T00:00:00+14:00", "1970 to 9999"),
        ("9999-12-31T23:59:59-14:00", "1970 to 9999"),
    ],
)
def test_text_that_is_no_timestamp_is_refused(text: str, word: str) -> None:
    assert word in refusal(timestamp_ms(up=True), text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (7, "7"), ("x", "x"), (["a"], '["a"]'), (("é",), '["é"]'), ({"log": 1}, '{"log": 1}')],
)
def test_values_of_python_become_text(value: object, text: str) -> None:
    assert option_text("x", value) == text


@pytest.mark.parametrize("value", [1.5, b"x", object(), [object()], EPOCH])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(OptionError, match=r"The option x .*Give text"):
        option_text("x", value)


def test_a_doubled_key_is_seen() -> None:
    with pytest.raises(ValueError, match="twice"):
        json.loads('{"a":1,"a":1}', object_pairs_hook=unique_pairs)


def test_the_table_escapes_bars() -> None:
    text = option_table([Option("a", "`x|y`", "Means a.", words, default="x"), Option("b", "", "", words, only="stream")])
    assert text.splitlines()[2:] == [
        r"| `a` | `x\|y` | `x` | batch, stream | Means a. |",
        "| `b` |  | none | stream |  |",
    ]


def test_a_table_must_have_the_names_of_its_parser() -> None:
    with pytest.raises(ValueError, match="differ"):
        OptionTable("sink", (Option("a", "", "", words),))


def test_a_missing_default_is_an_error() -> None:
    from spark_txn_source.options import COLUMNS, SOURCE

    with pytest.raises(ValueError, match="columns has no default"):
        SOURCE.read({}, streaming=None).value(COLUMNS)
