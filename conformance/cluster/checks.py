"""What must hold of the rows that a reader got: nothing lost, doubled, split or out of order. Pure, on whole tables.

The rows say where they belong (`input`). A violation is a sentence; no violation is an empty list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa

from conformance.cluster.input import ROWS, written

COLUMNS = ("key", "seq", "batch", "of", "writer", "__topic", "__segment", "__messageId", "__txnId")
_SHOWN = 3
"""Examples in one sentence."""


class Stream(NamedTuple):
    """What one writer writes to one topic."""

    topic: str
    writer: str

    def __str__(self) -> str:
        return f"{self.topic} of {self.writer}"


def partial(rows: pa.Table) -> list[str]:
    """What is wrong with one read of everything so far: splits, disorder, holes."""
    checks = (_split, _disordered, _holes)
    return [what for stream, found in _streams(rows) for check in checks for what in check(str(stream), found)]


def complete(rows: pa.Table, batches: Mapping[Stream, int]) -> list[str]:
    """What is wrong with a read after the end; `batches`: how many were written by each writer to its topic."""
    found = partial(rows)
    by_stream = dict(_streams(rows))
    for stream, count in batches.items():
        seen = by_stream.get(stream)
        if seen is None:
            if count:
                found.append(f"{stream}: all {count} batches are lost")
            continue
        expected = pd.DataFrame(
            [(key, seq) for batch in range(count) for key, seq in written(batch, stream.writer)], columns=["key", "seq"]
        )
        merged = expected.merge(seen[["key", "seq"]].drop_duplicates(), how="outer", indicator=True)
        lost, strange = merged[merged["_merge"] == "left_only"], merged[merged["_merge"] == "right_only"]
        if len(lost):
            found.append(f"{stream}: {len(lost)} rows are lost, e.g. seq {_some(lost['seq'])}")
        if len(strange):
            found.append(f"{stream}: {len(strange)} rows that nobody wrote, e.g. seq {_some(strange['seq'])}")
    return found


def streamed(polls: Sequence[tuple[int, pa.Table]]) -> list[str]:
    """What is wrong with the micro-batches of one query, as (batch id, rows) in the order in which they were got.

    A micro-batch that ran again must have the same rows; none may have part of a transaction, or rows that another one has.
    """
    found: list[str] = []
    first: dict[int, pd.DataFrame] = {}
    for batch, table in polls:
        rows = table.to_pandas().sort_values(["__topic", "__segment", "__messageId"], ignore_index=True)
        if batch in first:
            if not rows.equals(first[batch]):
                found.append(f"micro-batch {batch} had {len(first[batch])} rows and, run again, {len(rows)} others")
            continue
        first[batch] = rows
        for stream, seen in _streams(table):
            found += [f"micro-batch {batch}: {what}" for what in _split(str(stream), seen)]
    everything = [table for i, (batch, table) in enumerate(polls) if batch not in {b for b, _ in polls[:i]}]
    if everything:
        found += partial(pa.concat_tables(everything))
        highest: dict[str, tuple[int, int, int]] = {}
        for batch in sorted(first):
            for segment, seen in _positions(first[batch]).groupby("__segment", sort=True):
                places = sorted(zip(seen["ledger"], seen["entry"], seen["index"], strict=True))
                if places[0] <= highest.get(str(segment), (-1, -1, -1)):
                    found.append(
                        f"micro-batch {batch}: {segment} starts at {places[0]}, already seen up to {highest[str(segment)]}"
                    )
                highest[str(segment)] = max(places[-1], highest.get(str(segment), (-1, -1, -1)))
    return found


def vanished(before: pa.Table, after: pa.Table) -> list[str]:
    """Rows that an earlier read saw and a later one did not, or saw elsewhere."""
    merged = before.to_pandas().merge(after.to_pandas(), how="left", on=list(COLUMNS), indicator=True)
    gone = merged[merged["_merge"] != "both"]
    return [f"{len(gone)} rows were visible and are not any more, e.g. seq {_some(gone['seq'])}"] if len(gone) else []


def _streams(rows: pa.Table) -> Iterator[tuple[Stream, pd.DataFrame]]:
    for (topic, writer), found in _positions(rows.to_pandas()).groupby(["__topic", "writer"], sort=True):
        yield Stream(str(topic), str(writer)), found


def _positions(rows: pd.DataFrame) -> pd.DataFrame:
    """With the parts of the message id as numbers."""
    if rows.empty:
        return rows.assign(ledger=[], entry=[], index=[])
    places = rows["__messageId"].str.split(":", expand=True).astype("int64")
    return rows.assign(ledger=places[0], entry=places[1], index=places[2])


def _split(topic: str, rows: pd.DataFrame) -> Iterator[str]:
    """Batches that are doubled, of which only a part was seen, or that came from more than one transaction."""
    batches = rows.groupby("batch").agg(
        rows=("seq", "size"), seqs=("seq", "nunique"), txns=("__txnId", "nunique"), ledgers=("ledger", "nunique")
    )
    for what, bad in (
        ("rows doubled", batches[batches["rows"] > batches["seqs"]]),
        ("only a part seen", batches[batches["seqs"] != ROWS]),
        ("from several transactions", batches[(batches["txns"] != 1) | (batches["ledgers"] != 1)]),
    ):
        if len(bad):
            yield f"{topic}: {what} of {len(bad)} batches, e.g. {_some(bad.index.to_series())}: {bad.iloc[0].to_dict()}"
    mixed = rows.groupby("__txnId")["batch"].nunique()
    if (mixed > 1).any():
        yield f"{topic}: transactions with several batches: {_some(mixed[mixed > 1].index.to_series())}"


def _disordered(topic: str, rows: pd.DataFrame) -> Iterator[str]:
    """Keys whose rows do not lie in written order by position, or that lie in two segments at once: from one transaction to the
    next they may go on to another segment, and never come back to one that was split or merged.
    """
    spread = rows.groupby(["key", "ledger"])["__segment"].nunique()
    if (spread > 1).any():
        yield f"{topic}: keys in several segments: {_some(spread[spread > 1].index.to_series())}"
    ordered = rows.sort_values(["ledger", "entry", "index"])
    moves = ordered.groupby("key")["__segment"].agg(lambda found: (found != found.shift()).sum() - found.nunique())
    if (moves > 0).any():
        yield f"{topic}: keys that came back to a segment: {_some(moves[moves > 0].index.to_series())}"
    falling = ordered[ordered.groupby("key")["seq"].diff() <= 0]
    if len(falling):
        yield f"{topic}: {len(falling)} rows out of their key's order, e.g. seq {_some(falling['seq'])}"


def _holes(topic: str, rows: pd.DataFrame) -> Iterator[str]:
    """Batches missing below one that was seen: one writer commits its batches in order."""
    missing = set(range(int(rows["batch"].max()) + 1)) - set(rows["batch"].unique())
    if missing:
        yield f"{topic}: {len(missing)} batches are missing below {rows['batch'].max()}, e.g. {sorted(missing)[:_SHOWN]}"


def _some(values: pd.Series) -> list[object]:
    return list(values.head(_SHOWN))
