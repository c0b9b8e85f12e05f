"""Parse Spark's DDL text of a schema (`id bigint, tags array<string>`) without a JVM, so that topics can be created where no Java
is installed.

The grammar is Spark's (`colTypeList` and `dataType` of its SQL parser), for the types that a topic can keep. The tests compare
the results with `StructType.fromDDL`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyspark.sql import types as T

from ledgers.errors import SchemaError
from ledgers.limits import MAX_LEVELS

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>\w+)|(?P<sign>[<>(),:]))", re.ASCII
)
_PLAIN: Final[dict[str, T.DataType]] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "byte": T.ByteType(),
    "smallint": T.ShortType(),
    "short": T.ShortType(),
    "int": T.IntegerType(),
    "integer": T.IntegerType(),
    "bigint": T.LongType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "real": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ltz": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "variant": T.VariantType(),
    "void": T.NullType(),
}
_COMPOSED: Final = ("decimal", "dec", "numeric", "char", "character", "varchar", "array", "map", "struct", "interval")
_INTERVAL: Final = {"day": 0, "hour": 1, "minute": 2, "second": 3}


def parse_schema(text: str) -> T.StructType:
    """Return the schema that a DDL text describes. Raises SchemaError with the place of the mistake and, for an unknown type, the
    nearest known one.
    """
    parser = _Parser(text)
    schema = T.StructType(list(parser.columns(end="")))
    if not schema.fields:
        raise SchemaError("The schema is empty.", advice="Write columns and types, such as: id bigint, name string.")
    return schema


class _Token(NamedTuple):
    """One token: `kind` is quoted, text, word, sign or end; `at` is its offset in the text."""

    kind: str
    text: str
    at: int


class _Parser:
    """A recursive-descent parser of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0
        self._level = 0

    def _split(self) -> Iterator[_Token]:
        at = 0
        end = len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if not found or found.lastgroup is None:
                raise self._wrong(_Token("sign", self._text[at:].lstrip()[:1], at), "this character has no meaning here")
            yield _Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))
            at = found.end()
        yield _Token("end", "", end)

    def columns(self, end: str) -> Iterator[T.StructField]:
        """Parse columns separated by commas, each `name [:] type [NOT NULL] [COMMENT 'text']`. They end with the sign `end`. If
        `end` is empty, they end where the text ends.
        """
        if self._ends(end):
            return
        while True:
            name = self._name()
            if self._sees(":"):
                self._take()
            kind = self.kind()
            nullable = True
            if self._word() == "not":
                self._take()
                self._expect_word("null")
                nullable = False
            metadata = None
            if self._word() == "comment":
                self._take()
                metadata = {"comment": self._comment()}
            yield T.StructField(name, kind, nullable, metadata)
            if self._ends(end):
                return
            self._expect(",")

    def kind(self) -> T.DataType:
        """Return the type at the current token, with its nested types. Raises SchemaError for more than MAX_LEVELS levels."""
        self._level += 1
        if self._level > MAX_LEVELS:
            raise SchemaError(f"The schema has more than {MAX_LEVELS} levels.", advice="Write it flatter.")
        kind = self._kind()
        self._level -= 1
        return kind

    def _kind(self) -> T.DataType:
        token = self._take()
        word = token.text.lower() if token.kind == "word" else ""
        if word in _PLAIN:
            return _PLAIN[word]
        match word:
            case "decimal" | "dec" | "numeric":
                return self._decimal(token)
            case "char" | "character":
                return T.CharType(self._numbers(1)[0])
            case "varchar":
                return T.VarcharType(self._numbers(1)[0])
            case "array":
                self._expect("<")
                element = self.kind()
                self._expect(">")
                return T.ArrayType(element, True)
            case "map":
                self._expect("<")
                key = self.kind()
                self._expect(",")
                value = self.kind()
                self._expect(">")
                return T.MapType(key, value, True)
            case "struct":
                self._expect("<")
                return T.StructType(list(self.columns(end=">")))
            case "interval":
                return self._interval()
        near = difflib.get_close_matches(word, [*_PLAIN, *_COMPOSED], n=1, cutoff=0.6)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise self._wrong(token, f"this is not a type{hint}")

    def _decimal(self, token: _Token) -> T.DataType:
        precision, scale = 10, 0
        if self._sees("("):
            precision, *rest = self._numbers(2)
            scale = rest[0] if rest else 0
        if not (1 <= precision <= 38 and scale <= precision):
            raise self._wrong(token, f"decimal({precision},{scale}) does not exist: precision is 1 to 38, scale at most that")
        return T.DecimalType(precision, scale)

    def _interval(self) -> T.DataType:
        first = self._interval_field()
        last = first
        if self._word() == "to":
            self._take()
            token = self._peek()
            last = self._interval_field()
            if last <= first:
                raise self._wrong(token, "an interval ends in a smaller unit than it begins")
        return T.DayTimeIntervalType(first, last)

    def _interval_field(self) -> int:
        token = self._take()
        unit = token.text.lower()
        if unit not in _INTERVAL:
            raise self._wrong(
                token, "a topic keeps intervals of day, hour, minute and second only, such as: interval day to second"
            )
        return _INTERVAL[unit]

    # --- tokens ---------------------------------------------------------------------------------------------------

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        if token.kind == "end":
            raise self._wrong(token, "something is missing here")
        self._next += 1
        return token

    def _sees(self, sign: str) -> bool:
        token = self._peek()
        return token.kind == "sign" and token.text == sign

    def _ends(self, end: str) -> bool:
        """Return whether the list of columns ends here. If so, the closing sign is consumed."""
        if not end:
            return self._peek().kind == "end"
        if self._sees(end):
            self._next += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        token = self._peek()
        if not self._sees(sign):
            raise self._wrong(token, f"expected {sign!r}")
        self._next += 1

    def _word(self) -> str | None:
        token = self._peek()
        return token.text.lower() if token.kind == "word" else None

    def _expect_word(self, word: str) -> None:
        if self._word() != word:
            raise self._wrong(self._peek(), f"expected {word.upper()}")
        self._next += 1

    def _name(self) -> str:
        token = self._take()
        if token.kind == "quoted":
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word":
            raise self._wrong(token, "expected a column's name (put other than letters, digits and _ into `backticks`)")
        return token.text

    def _comment(self) -> str:
        token = self._take()
        if token.kind != "text":
            raise self._wrong(token, "expected the comment's text in quotes")
        return re.sub(r"\\(.)", r"\1", token.text[1:-1])

    def _numbers(self, most: int) -> list[int]:
        self._expect("(")
        found = []
        while True:
            token = self._take()
            if token.kind != "word" or not token.text.isdigit() or len(token.text) > 9:
                raise self._wrong(token, "expected a number")
            found.append(int(token.text))
            if len(found) < most and self._sees(","):
                self._take()
                continue
            self._expect(")")
            return found

    def _wrong(self, token: _Token, problem: str) -> SchemaError:
        where = f"at {token.text!r} (character {token.at + 1})" if token.text else "at its end"
        return SchemaError(
            f"The schema {self._text.strip()!r} cannot be read {where}: {problem}.",
            advice="Write columns and types as in Spark SQL, such as: id bigint, name string, tags array<string>.",
        )
