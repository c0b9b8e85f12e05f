"""Tables of Spark's catalogue, which topics cannot be: Spark gives a Python data source neither the name nor the options of one.

What Spark 4.3 does (seen by a data source that logs its calls):

| call | what the source sees |
|---|---|
| `CREATE TABLE .. (columns) USING` | nothing: Spark makes the table without a call of the source |
| `CREATE TABLE .. USING` without columns | properties of the table (`provider`, `owner`), each option as `x` and as `option.x` |
| a read or an `INSERT` of a table | no option at all |
| `saveAsTable`, `writeTo`, `CREATE TABLE .. AS SELECT` | the options of the write, without a name |
| `toTable` | the options of the stream, without a name |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from metadata.common.errors import OptionError

NO_TOPIC: Final = (
    "saveAsTable(name), writeTo(name) and toTable(name) name a table of Spark's catalogue, and Spark does not pass this name on. "
    "If Spark has made such a table, it is of no use: drop it."
)
"""What the advice for a write without a topic adds."""
_VIEW: Final = "CREATE TEMPORARY VIEW v USING txnsegment OPTIONS (serviceUrl '...', topic '...')"
_NOTHING: Final[Mapping[Literal["read", "write"], str]] = {
    "read": "load() names no topic, or Spark reads a table of its catalogue (made by CREATE TABLE, saveAsTable or toTable)",
    "write": "save() names no topic, or Spark writes a table of its catalogue (saveAsTable, writeTo, CREATE TABLE, INSERT INTO)",
}
_ADVICE: Final[Mapping[Literal["read", "write"], str]] = {
    "read": f'Read a topic with spark.read.format("txnsegment").load(name), and in SQL by a view: {_VIEW}.',
    "write": 'Write to a topic with df.write.format("txnsegment").mode("append").save(name), with '
    f'df.writeStream.format("txnsegment").start(name), and in SQL by INSERT INTO a view: {_VIEW}.',
}


def of_a_table(options: Mapping[str, str], way: Literal["read", "write"]) -> OptionError:
    """Return the error for options that Spark passes when it makes a table of its catalogue, or for none, when it uses a table."""
    if options:
        return OptionError(
            "A topic cannot be a table of Spark's catalogue (CREATE TABLE .. USING txnsegment): when Spark reads or writes a "
            "table, it passes no option of the table on.",
            advice=_ADVICE["read"],
        )
    return OptionError(f"No option reached txnsegment: {_NOTHING[way]}, and passes nothing of it on.", advice=_ADVICE[way])
