"""Options of source and sink: declaration, lookup, parsing and documentation (docs/options.md).

An `Option` declares everything about one option. The parser and the tables of the documentation use the same declaration.

    ROWS = Option("maxRowsPerTrigger", "whole number", "Soft limit of a micro-batch.", integer(1), only="stream")
    TABLE = OptionTable("source", (ROWS, ...))
    given = TABLE.read(options, streaming=True)
    given.get(ROWS)                      # int | None
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, NoReturn, TypeVar, cast

from ledgers.json_text import read_json
from metadata.common.errors import OptionError

T = TypeVar("T")
S = TypeVar("S", bound=str)
Parse = Callable[[str, str], T]
"""Parses one value: (option name, text) -> value. Raises OptionError that names the option."""
Side = Literal["source", "sink"]
Mode = Literal["batch", "stream"]

LONG_MAX: Final = 2**63 - 1
SPARK_OWN: Final[Mapping[str, str]] = {
    "path": "the argument of `load(x)`, `save(x)` and `start(x)`, or `OPTIONS (path 'x')` of a view: another way to give `topic`",
    "paths": "the argument of `load([a, b])`, a JSON list: another way to give `topics`",
    "checkpointlocation": "where Spark keeps a query's checkpoint; passed on to the sink of a stream",
    "queryname": "the name given by `queryName(x)`; passed on to the sink of a stream",
}
"""Options that Spark itself adds for a Python data source (seen with pyspark 4.3.0, and in the bytecode of Spark's readers and
writers). Output mode, trigger, user schema and `partitionBy` are not among them.
"""

SOURCE_NAMES: Final = [
    "serviceUrl",
    "topic",
    "topics",
    "topicsPattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "timestampTimeoutMs",
    "subscription",
    "acknowledged",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxPartitionBytes",
    "isolationLevel",
    "failOnDataLoss",
    "topicsChanged",
    "schemaChange",
    "columns",
    "includeMetadata",
    "valueFormat",
    "schemaVersion",
]
SINK_NAMES: Final = [
    "serviceUrl",
    "topic",
    "keyColumn",
    "segments",
    "autoCreate",
    "mergeSchema",
    "txnAppId",
    "txnVersion",
    "txnStaging",
    "txnTimeoutMs",
    "afterRestore",
    "compression",
    "entryBytes",
    "entryRows",
    "valueFormat",
    "schemaVersion",
]
"""Names of all options. Source and sink do not import each other. With this list each of them recognises an option of the other."""

_NAMES: Final[Mapping[Side, Sequence[str]]] = {"source": SOURCE_NAMES, "sink": SINK_NAMES}
_OTHER: Final[Mapping[Side, Side]] = {"source": "sink", "sink": "source"}
_PULSAR_ONLY: Final = {name.lower(): name for name in ("adminUrl", "hashBits", "metadataUrl")}
"""Options that only reads or writes of a Pulsar cluster have."""
_CREDENTIAL: Final = re.compile(r"passw|secret|token|credential|auth|apikey|accesskey|privatekey|digest|sasl")
CREDENTIALS_ADVICE: Final = (
    "Credentials are never options or part of a URL, since Spark shows both in plans and logs: give them to the driver in its "
    "environment (TXNSEGMENT_ZK_AUTH=digest:user:password and its like, for Pulsar TXNSEGMENT_PULSAR_TOKEN), or in a file that "
    "TXNSEGMENT_ZK_AUTH_FILE or TXNSEGMENT_PULSAR_TOKEN_FILE names."
)


# --- declarations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option.

    name          as documented; looked up without regard to case
    values        the possible values, for the table of the documentation (Markdown)
    meaning       description for that table
    parse         text -> value
    default       text that `parse` reads if the option is not given; None: no default
    default_note  text that the table shows in place of `default`, if the default depends on something else
    only          the one mode in which the option can be used; `why` is the reason that an error gives
    refused       the reason why the option cannot be used at all with this kind of cluster (`without`); empty: it can be used
    """

    name: str
    values: str
    meaning: str
    parse: Parse[T]
    default: str | None = None
    default_note: str = ""
    only: Mode | None = None
    why: str = ""
    refused: str = ""


def without(option: Option[Any], what: str, why: str, advice: str = "Leave it out.") -> Option[Any]:
    """Return a copy of an option that refuses every value. `what`: the kind of cluster that does not have the option, such as "a
    Pulsar cluster". `why`: the reason, for the error and for the page of all options.
    """

    def parse(name: str, text: str) -> NoReturn:
        raise OptionError(f"The option {name} cannot be used with {what}: {why}.", advice=advice)

    return replace(option, parse=parse, default=None, refused=why)


class Given:
    """The parsed values of the options that the user gave."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def __contains__(self, option: Option[T]) -> bool:
        return option.name in self._values

    def has(self, name: str) -> bool:
        """Return whether the option with this documented name was given."""
        return name in self._values

    def get(self, option: Option[T]) -> T | None:
        """Return the given value, or None."""
        return cast("T | None", self._values.get(option.name))

    def value(self, option: Option[T]) -> T:
        """Return the given value, or the option's default. Raises ValueError if there is neither."""
        if option.name in self._values:
            return cast("T", self._values[option.name])
        if option.default is None:
            raise ValueError(f"{option.name} has no default")
        return option.parse(option.name, option.default)


class OptionTable:
    """All options of one side, the source or the sink. `spark_own`: options under Spark's own names (`path`, `paths`) that this
    side reads too. `more`: options that exist only for one kind of cluster, such as Pulsar.
    """

    def __init__(
        self,
        side: Side,
        options: Sequence[Option[Any]],
        spark_own: Sequence[Option[Any]] = (),
        more: Sequence[Option[Any]] = (),
    ) -> None:
        if [o.name for o in options] != list(_NAMES[side]):
            found = sorted({o.name for o in options} ^ {*_NAMES[side]})
            what = f"in {', '.join(found)}" if found else "in their order"
            raise ValueError(f"the options of the {side} and {side.upper()}_NAMES in metadata.common.options differ {what}")
        self.side = side
        self.options = (*options, *more)
        self._own = {o.name.lower(): o for o in self.options}
        self._by_key = self._own | {o.name.lower(): o for o in spark_own}

    def read(self, options: Mapping[str, object], *, streaming: bool | None) -> Given:
        """Parse the user's options. Names are matched without regard to case. An option with the value None counts as not given.
        Options that Spark itself adds (`SPARK_OWN`) are ignored, except those that this side reads.

        `streaming`: None while the mode is unknown, because Spark asks a source for its schema before it sets the mode. Raises
        OptionError.
        """
        given: dict[str, object] = {}
        texts: dict[str, str] = {}
        for name, value in options.items():
            key = name.lower()
            if value is None or (key in SPARK_OWN and key not in self._by_key):
                continue
            option = self._by_key.get(key)
            if option is None:
                raise self._unknown(name)
            text = option_text(option.name, value)
            if texts.setdefault(key, text) != text:
                raise OptionError(f"The option {option.name} is given twice, with two values.", advice="Give it once.")
            if streaming is not None and option.only is not None and (option.only == "stream") is not streaming:
                mode = "stream" if streaming else "batch"
                raise OptionError(
                    f"The option {option.name} cannot be used in a {mode} {'read' if self.side == 'source' else 'write'}: "
                    f"{option.why}.",
                    advice=f"Leave it out; it is for {option.only} mode.",
                )
            given[option.name] = option.parse(option.name, text)
        return Given(given)

    def _unknown(self, name: str) -> OptionError:
        key = name.lower()
        there = {n.lower(): n for n in _NAMES[_OTHER[self.side]]}
        if key in there:
            return OptionError(
                f"{there[key]} is an option of the {_OTHER[self.side]}, not of the {self.side}.",
                advice=f"Give it where you {'write' if self.side == 'source' else 'read'} the topic.",
            )
        if _CREDENTIAL.search(re.sub(r"[^a-z]", "", key)):
            return OptionError(f"The option {name!r} looks like a credential. Its value was not used.", advice=CREDENTIALS_ADVICE)
        if key in _PULSAR_ONLY and not _PULSAR_ONLY.keys() & self._by_key.keys():
            return OptionError(
                f"The option {_PULSAR_ONLY[key]} is for a Pulsar cluster, and the service URL is not one of Pulsar.",
                advice="Give serviceUrl as pulsar://host:6650, or leave the option out.",
            )
        from metadata.common.foreign_options import foreign  # imported late, because most reads and writes have no such option

        known, found = self._own, foreign(name)
        if found is not None:
            return OptionError(
                f"The {self.side} has no option {name!r}, which is one of {found.owner}.",
                advice=f"{found.advice(self.side)} All are listed in docs/options.md.",
            )
        meant = known[difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]]
        return OptionError(
            f"The {self.side} has no option {name!r}.",
            advice=f"Did you mean {meant.name}? All are listed in docs/options.md.",
        )


def option_text(name: str, value: object) -> str:
    """Convert a value to text as Spark does. Python booleans, integers, lists and dicts (keywords of `scan`) become JSON. Raises
    OptionError.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple | dict):
        try:
            return json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError) as e:
            raise OptionError(f"The option {name} cannot be written as JSON: {e}.", advice="Give text.") from e
    if isinstance(value, str):
        return value
    raise OptionError(f"The option {name} has a value of type {type(value).__name__}.", advice="Give text.")


# --- how values are read -------------------------------------------------------------------------------------------


def bad(name: str, text: str, problem: str, advice: str) -> OptionError:
    """Build the error of a bad value. The error names the option, shows the value, and `advice` says what to write."""
    shown = text if len(text) <= 200 else text[:200] + "..."
    return OptionError(f"The option {name} is {shown!r}: {problem}.", advice=advice)


def words(name: str, text: str) -> str:
    """Parse non-empty text; surrounding spaces are removed."""
    if not text.strip():
        raise bad(name, text, "it is empty", "Give a value, or leave the option out.")
    return text.strip()


def boolean(name: str, text: str) -> bool:
    """Parse `true` or `false` in any case."""
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise bad(name, text, "it is neither true nor false", "Write true or false.") from None


def one_of(*values: S) -> Parse[S]:
    """Return a parser for one of `values` in any case. Its error names the nearest value."""

    def parse(name: str, text: str) -> S:
        word = text.strip().lower()
        for value in values:
            if value.lower() == word:
                return value
        lower = {value.lower(): value for value in values}
        near = lower[difflib.get_close_matches(word, lower, n=1, cutoff=0.0)[0]]
        listed = ", ".join(values)
        raise bad(name, text, f"it must be one of {listed}", f"Did you mean {near}?")

    return parse


def integer(least: int, most: int = LONG_MAX, *, unit: str = "") -> Parse[int]:
    """Return a parser for a whole number from `least` to `most` in plain digits. `unit` names the unit in errors."""
    of = f" of {unit}" if unit else ""
    up_to = "" if most == LONG_MAX else f" to {most}"

    def parse(name: str, text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,30}", text.strip(), re.ASCII):
            raise bad(name, text, f"it is not a whole number{of}", f"Write digits only, from {least}{up_to}.")
        number = int(text)
        if not least <= number <= most:
            raise bad(name, text, f"it must be a whole number{of} from {least} to {most}", f"Give a number from {least}{up_to}.")
        return number

    return parse


_UNITS: Final = {"b": 0, "k": 1, "kb": 1, "m": 2, "mb": 2, "g": 3, "gb": 3, "t": 4, "tb": 4}


def byte_size(least: int = 1, most: int = LONG_MAX) -> Parse[int]:
    """Return a parser for a size in bytes, as Spark writes it: `65536`, `128m`, `1g` (units of 1024: b, k, kb, m, mb, g, gb, t,
    tb).
    """

    def parse(name: str, text: str) -> int:
        found = re.fullmatch(r"([0-9]{1,30})\s*([a-z]*)", text.strip().lower(), re.ASCII)
        if not found or (found[2] and found[2] not in _UNITS):
            raise bad(name, text, "it is not a size in bytes", "Write a whole number with or without a unit: 65536, 128m or 1g.")
        size = int(found[1]) << (10 * _UNITS[found[2] or "b"])
        if not least <= size <= most:
            raise bad(name, text, f"it must be {least} to {most} bytes", "Write a size such as 16m or 1g within that range.")
        return size

    return parse


def milliseconds(least: int, most: int) -> Parse[int]:
    """Return a parser for a duration in whole milliseconds. Units are refused, because seconds could be misread (failure A12)."""
    return integer(least, most, unit="milliseconds")


def names(name: str, text: str) -> tuple[str, ...]:
    """Parse names separated by commas, or a JSON list of texts (for names with commas). The order is kept."""
    if text.lstrip().startswith("["):
        try:
            found = read_json(text)
        except ValueError as e:
            raise bad(name, text, f"it starts like a JSON list but is not valid ({e})", 'Write a, b or ["a", "b"].') from e
        if not isinstance(found, list) or not all(isinstance(n, str) for n in found):
            raise bad(name, text, "a JSON list here holds texts only", 'Write a, b or ["a", "b"].')
    else:
        found = [n.strip() for n in text.split(",")]
    if not found or not all(n.strip() for n in found):
        raise bad(name, text, "a name in it is empty", 'Write a, b or ["a", "b"].')
    return tuple(found)


def offset_json(text: str) -> Any:
    """Parse the JSON of an offset. A dict of Python is accepted too, since Spark turns the dict of a query's progress into such a
    text. Raises ValueError.
    """
    if text.lstrip().startswith("{'"):
        try:
            return ast.literal_eval(text.strip())
        except (SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(str(error)) from error
    return read_json(text, pairs=unique_pairs)


def unique_pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Build a dict for `json.loads(object_pairs_hook=...)`. Raises ValueError for a duplicate key."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found
