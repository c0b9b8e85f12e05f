"""Judge reads (invariants 4, 5, 9, 13). Each read must return exactly the committed rows of its range, so of each transaction all
rows or none. The rows must be at their positions and in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

from conformance.history.findings import Findings
from conformance.history.format import Poll, Read, Row, Time
from conformance.history.keys import Keys
from conformance.history.ranges import Cell, Ranges
from conformance.history.truth import NEVER, Batch, Truth


class Reading:
    """Judges reads. `truth`: the committed data of the whole history. The methods must be called in the order in which the reads
    returned.
    """

    def __init__(self, truth: Truth, ranges: Ranges, found: Findings) -> None:
        self._truth, self._ranges, self._found = truth, ranges, found
        self.placed: dict[tuple[int, str], Row] = {}
        """(number, row id) -> the row, as the first read that returned it showed it."""
        self._held: dict[tuple[str, tuple[int, int, int]], str] = {}
        """(segment, position) -> the id of the row that the first read of this position returned."""
        self._shown: dict[tuple[str, ...], tuple[list[Time], list[int]]] = {}
        """Topics -> the times at which reads of these topics returned, and for each time the highest number returned by then."""
        self._keys: dict[str, Keys] = {}
        """Reader -> the judge of the order of rows within each key, for its last read. A read with `new` continues with this judge.
        """

    def read(self, event: Read, new: tuple[Row, ...] | None = None) -> None:
        """Judge one read. `new`: the rows that the same reader's previous read did not return, if this read repeats all rows of the
        previous one unchanged; only these rows are judged for their order and positions. None: all rows are judged for them.
        """
        top = max((row[2][0] for row in event.rows), default=-1)
        start: float = -1 if event.start is None else event.start
        end: float = top if event.end is None else event.end
        if event.final:
            end = NEVER
        elif event.end is None:
            end = max(end, self._ranges.floor(event.topics, event.began), self._shown_before(event))
        self.compare(event, start, end, new)
        for batch in self._ranges.unseen(event.topics, event.began, event.final) if event.end is None or event.final else ():
            self._found.note(
                "lost write", f"{event.who} got nothing of {batch.label}, nor did anybody else", *batch.calls[-1:], event
            )
        if new is None or event.who not in self._keys:
            self._keys[event.who] = Keys(self._truth, self._found)
        self._keys[event.who].more(event if new is None else event._replace(rows=new), event.who)

    def _shown_before(self, event: Read) -> int:
        """Return the highest number that reads of these topics had returned before this read began; -1 if there is none. All
        numbers below that one were decided then, so this read must show them.
        """
        best = -1
        for topics, (ats, tops) in self._shown.items():
            if topics == event.topics or set(topics) >= set(event.topics):
                passed = bisect_left(ats, event.began)
                best = max(best, tops[passed - 1] if passed else -1)
        return best

    def compare(self, event: Read | Poll, start: float, end: float, new: tuple[Row, ...] | None = None) -> None:
        """Report a violation unless the rows of the read are exactly the committed rows with start < number <= end, in order and at
        their positions. `new`: as in `read`.
        """
        rows = event.rows
        if event.end is None and rows:
            ats, tops_shown = self._shown.setdefault(event.topics, ([], []))
            ats.append(event.at)
            top = max(row[2][0] for row in rows)
            tops_shown.append(max(top, tops_shown[-1]) if tops_shown else top)
        expected = self._ranges.expected(event.topics, start, end, event.at, event.segments)
        if self._truth.store:
            got: list[Cell] = [(position[0], segment, name) for name, segment, position, _, _ in rows]
        else:
            got = [(position[0], None, name) for name, _, position, _, _ in rows]
        cells = expected.cells
        if self._truth.trims:
            cells = self._less_trimmed(event, cells, got)
        if len(got) != len(cells) or expected.latest > event.at or not cells.issuperset(got) or len(set(got)) != len(got):
            self._differ(event, start, end, Counter(got), cells)
        self._at_their_places(event if new is None else event._replace(rows=new))

    def _less_trimmed(self, event: Read | Poll, cells: frozenset[Cell], got: list[Cell]) -> frozenset[Cell]:
        """Return the expected rows (`cells`) without the trimmed ones that the read may lack. Report trimmed rows in the read."""
        back = self._truth.trims.gone(event.began, event.rows)
        if back:
            text = f"{_who(event)}: {len(back)} rows, e.g. {back[0].position} of {back[0].segment}"
            self._found.note("trimmed rows came back", text, event)
        return cells - self._truth.trims.may_miss(event, cells.difference(got), got)

    def delivered(self, event: Poll) -> None:
        """Judge the rows that a subscription got. Each row must be committed and at its position. Committed rows may be missing."""
        expected = self._ranges.expected(event.topics, -1, NEVER, event.at, event.segments)
        got = Counter(self._cell(row) for row in event.rows)
        missing = expected.cells.difference(got)
        self._differ(event, -1, NEVER, got, expected.cells - missing)
        self._at_their_places(event)

    def _cell(self, row: Row) -> Cell:
        return row.position[0], row.segment if self._truth.store else None, row.id

    def _at_their_places(self, event: Read | Poll) -> None:
        placed = self.placed
        tops: dict[str, tuple[int, int, int]] = {}
        for row in event.rows:
            name, segment, position, _, txn = row
            before = placed.setdefault((position[0], name), row)
            if txn is not None and (before is row or before[4] != txn):
                self._of_its_transaction(row, event)
            if before is row:
                held = self._held.setdefault((segment, position), name)
                if held != name:
                    self._found.note("moved row", f"{_who(event)} got {row} where {held} was", event)
            elif before[2] != position or before[1] != segment:
                self._found.note("moved row", f"{_who(event)} got {row}, it was {before}", event)
            if event.ordered:
                if segment in tops and position <= tops[segment]:
                    text = f"{_who(event)} got {position} after {tops[segment]} of {segment}"
                    self._found.note("internal reorder", text, event, invariant=5)
                tops[segment] = position

    def _of_its_transaction(self, row: Row, event: Read | Poll) -> None:
        """Report a violation if the row's metadata names another transaction than the one that registered the row. Without store
        records, the transaction that committed the row is compared instead.
        """
        truth, number = self._truth, row.position[0]
        if truth.store:
            known = truth.registered.get(number)
            if known is None:
                return  # the number has no registration, which was reported as an unwritten read
            txn = known.first.txn
        else:
            batch = truth.committed.get(number)
            if batch is None or batch.txn is None:
                return
            txn = batch.txn
        if row.txn != txn:
            text = f"{_who(event)} got {number}:{row.id} as a row of {row.txn}; {txn or 'a plain write'} registered it"
            self._found.note("wrong transaction", text, event)

    def _differ(self, event: Read | Poll, start: float, end: float, got: Counter[Cell], expected: frozenset[Cell]) -> None:
        numbers = {cell[0] for cell in got}
        top, bottom = max(numbers, default=-1), min(numbers, default=-1)
        wrong: dict[str, list[Cell]] = defaultdict(list)
        for cell in expected.difference(got):
            if cell[0] in numbers:
                wrong["torn read"].append(cell)
            elif isinstance(event, Poll) and cell[0] < bottom:
                wrong["poll skip"].append(cell)
            elif cell[0] < top:
                wrong["internal skip"].append(cell)
            else:
                wrong["lost write"].append(cell)
        for cell, times in got.items():
            if times > 1:
                wrong["duplicate"].append(cell)
            elif cell not in expected:
                wrong[self._extra(cell, start, end, event)].append(cell)
            elif self._truth.committed[cell[0]].committed_at > event.at:
                wrong["precommitted read"].append(cell)
        for word, cells in wrong.items():
            self._found.note(word, f"{_who(event)} (range {start}..{end}): {_some(cells)}", event)

    def _extra(self, cell: Cell, start: float, end: float, event: Read | Poll) -> str:
        truth, (number, _, name) = self._truth, cell
        if truth.store:
            registered = truth.registered.get(number)
            if registered is None or name not in {row.id for row in registered.first.rows}:
                return "unwritten read"
            txn = truth.txns.get(registered.first.txn or "")
            if number in truth.committed:
                return "outside its range"
            return "precommitted read" if txn is not None and txn.decided_at > event.at else "aborted read"
        batch = truth.writer_of.get(name)
        if batch is None:
            return "unwritten read"
        if _doomed(batch, truth):
            return "aborted read"
        if min(call.at for call in batch.calls) > event.at:
            return "precommitted read"
        return "duplicate" if batch.number != number else "outside its range"


def learn(truth: Truth, found: Findings, reads: Iterable[Read | Poll]) -> None:
    """Derive the number of each batch from the rows that reads returned, in a history without store records. A row that a read
    returned counts as committed. Report versions that were committed twice, and transaction ids that two versions have.
    """
    twice: set[tuple[str, int]] = set()
    of_txn: dict[str, Batch] = {}
    for event in reads:
        for row in event.rows:
            batch, number = truth.writer_of.get(row.id), row.position[0]
            if batch is None or _doomed(batch, truth) or min(call.at for call in batch.calls) > event.at:
                continue
            if batch.number == number:
                batch.committed_at = min(batch.committed_at, event.at)
                continue
            seen = truth.decided.get(batch.version) if batch.version is not None else None
            if batch.number is not None or (seen is not None and seen is not batch and seen.number is not None):
                other = batch if batch.number is not None or seen is None else seen
                if other.number != number and (batch.label, number) not in twice:
                    twice.add((batch.label, number))
                    text = f"{batch.label} lies at {other.number} and at {number}"
                    found.note("version committed twice", text, *batch.calls[:1], event)
                continue
            batch.number = number
            batch.txn = batch.txn or row.txn
            if row.txn is not None and (first := of_txn.setdefault(row.txn, batch)) is not batch:
                found.note("txn id reused", f"{row.txn} committed {first.label} and {batch.label}", *batch.calls[:1], event)
            batch.committed_at = min(batch.committed_at, event.at)
            truth.committed.setdefault(number, batch)
            if batch.version is not None:
                truth.decided[batch.version] = batch


def versions_in_order(truth: Truth, found: Findings) -> None:
    """Report each version whose log number is below that of a lower version of its application (without store records)."""
    by_application: dict[tuple[str, str], list[Batch]] = defaultdict(list)
    for (app, topic, _), batch in truth.decided.items():
        if batch.number is not None:
            by_application[app, topic].append(batch)
    for batches in by_application.values():
        batches.sort(key=lambda b: b.version or ("", "", -1))
        for lower, higher in pairwise(batches):
            if (lower.number or 0) >= (higher.number or 0):
                text = f"{higher.label} lies at {higher.number}, {lower.label} at {lower.number}"
                found.note("versions out of order", text, *lower.calls[:1], *higher.calls[:1])


def _doomed(batch: Batch, truth: Truth) -> bool:
    """Return whether every call for the batch was answered `failed`, `conflict` or `aborted`. Then its rows are not committed."""
    return all(
        (told := truth.told.get(call.call)) is not None and told.said in ("failed", "conflict", "aborted") for call in batch.calls
    )


def _who(event: Read | Poll) -> str:
    return event.who if isinstance(event, Read) else f"{event.stream}, micro-batch {event.batch}"


def _some(cells: list[Cell]) -> str:
    cells.sort(key=lambda c: (c[0], c[2]))
    shown = ", ".join(f"{number}:{name}" for number, _, name in cells[:3])
    return f"{len(cells)} rows, {shown}{', ...' if len(cells) > 3 else ''}"
