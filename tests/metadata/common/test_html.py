"""Tests of the tables that notebooks show: every text is escaped, and long tables are cut."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import StructType

from metadata.common.html import MOST_ROWS, Shown, described, table

EVIL = "<script>alert('x')</script>&\x1b[2J"
SAFE = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;\\x1b[2J"


@dataclass(frozen=True)
class Part:
    part_name: str
    created_ms: int


@dataclass(frozen=True)
class Whole(Shown):
    name: str
    key: str | None
    schema: StructType | None
    made_ms: int
    labels: dict[str, str]
    parts: tuple[Part, ...]


def test_every_text_is_escaped() -> None:
    assert table([EVIL], [[EVIL]]) == f"<table><tr><th>{SAFE}</th></tr><tr><td>{SAFE}</td></tr></table>"
    assert table((), [(EVIL, EVIL)]) == f"<table><tr><th>{SAFE}</th><td>{SAFE}</td></tr></table>"
    whole = Whole(EVIL, EVIL, StructType().add(EVIL, "string"), 0, {EVIL: EVIL}, (Part(EVIL, 1),))
    assert "<script" not in described(whole)
    assert "\x1b" not in described(whole)
    assert described(whole).count(SAFE) == 6


def test_fields_become_rows_and_lists_of_dataclasses_become_tables() -> None:
    whole = Whole("t", None, StructType().add("id", "long"), 1_700_000_000_000, {"a": "b"}, (Part("p", 1000), Part("q", 0)))
    assert whole._repr_html_() == (
        "<table><tr><th>name</th><td>t</td></tr><tr><th>key</th><td></td></tr><tr><th>schema</th><td>id bigint</td></tr>"
        "<tr><th>made</th><td>2023-11-14T22:13:20.000Z</td></tr><tr><th>labels</th><td>a=b</td></tr></table>"
        "<table><tr><th>part name</th><th>created</th></tr><tr><td>p</td><td>1970-01-01T00:00:01.000Z</td></tr>"
        "<tr><td>q</td><td>0</td></tr></table>"
    )


def test_a_long_table_says_how_many_rows_it_leaves_out() -> None:
    shown = table(["n"], [[n] for n in range(MOST_ROWS + 7)])
    assert shown.count("<tr>") == 1 + MOST_ROWS + 1
    assert shown.endswith("<tr><td>and 7 more</td></tr></table>")
