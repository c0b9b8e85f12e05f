"""The journal of transactions over several topics (`cluster.transaction()`).

The program opens a transaction and commits it. Processes of Spark carry out its writes. They tell each other by the journal: a
writers' log (`pulsar_protocol.sent_log`), one for each application. Its records are plain, in the order of one segment:

    opening  the program has opened the transaction. The record is an `Attempt` with the application, so that a later run of the
             application finds the transaction and aborts it (`Control.strays`)
    begun    a write is planned. From now on its tasks may send rows
    ended    all tasks of the write have sent their rows. It has the positions of the rows
    closing  the program is about to commit

Two facts make a commit complete:

- A planner reads the journal from the opening to its own `begun`. If a `closing` is there, the write is refused.
- The program commits only if each `begun` before its `closing` has its `ended` before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import PulsarError, TopicMissing, TopicTerminated
from pulsar_protocol.layout import Position
from pulsar_protocol.reader import entries
from pulsar_protocol.sent_log import damaged
from spark_txn_sink.pulsar.attempts import Attempt, Opened, written

Kind = Literal["begun", "ended", "closing"]
Places = Mapping[str, tuple[Position, Position]]
"""For each segment, the first and last position of rows."""


class WriteRefused(TxnSegmentError):
    """The transaction of a write does not take the write any more. The write has sent nothing."""


class Unfinished(TxnSegmentError):
    """A transaction has a write that failed or still runs, so it must not be committed."""


@dataclass(frozen=True)
class Note:
    """A record of the journal. `write`: the id of the write. `execution`: the number of its SQL execution in Spark, if known.
    `logged`: the position of the first record of the write in the writers' log of its topic.
    """

    kind: Kind
    txn: str
    write: str = ""
    topic: str = ""
    segments: Places = field(default_factory=dict)
    rows: int = 0
    execution: int | None = None
    logged: Position | None = None

    def encoded(self) -> bytes:
        """Return the JSON text. It also has the fields of an attempt's record, because openings are in the same log."""
        places = {name: [first.text, last.text] for name, (first, last) in self.segments.items()}
        attempt = {"txn": self.txn, "id": self.write, "partition": None, "app": None}
        more = {"topic": self.topic, "segments": places, "rows": self.rows, "execution": self.execution}
        logged = None if self.logged is None else self.logged.text
        return json.dumps({"kind": self.kind, **attempt, **more, "logged": logged}, separators=(",", ":")).encode()

    @staticmethod
    def decoded(data: bytes, log: str = "a journal") -> Note | None:
        """Return a record, or None for an opening. `log`: the segment that has the record, for errors. Raises LogDamaged."""
        try:
            fields = json.loads(data)
            if fields.get("kind") not in ("begun", "ended", "closing"):
                return None
            places = {name: (Position.parse(first), Position.parse(last)) for name, (first, last) in fields["segments"].items()}
            logged = None if fields["logged"] is None else Position.parse(fields["logged"])
            get = fields.__getitem__
            return Note(get("kind"), get("txn"), get("id"), get("topic"), places, get("rows"), get("execution"), logged)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(log, data, error) from error


def journal_name(namespace: str, app: str | None) -> str:
    """Return the name by which the journal and the control topic of an application are found, in place of a topic's name. No topic
    has such a name. `namespace`: `tenant/namespace`.
    """
    return f"topic://{namespace}/\n{app or ''}"


def token(opened: Opened) -> str:
    """Return the text by which a write finds its transaction: the option `txnStaging`."""
    return f"{opened.txn.text}@{opened.place.text}@{opened.segment}"


def opened_of(text: str) -> Opened:
    """Return the transaction of a token. Raises ValueError."""
    txn, place, segment = text.split("@", 2)
    if not segment.startswith("segment://"):
        raise ValueError(f"{segment!r} is no segment")
    return Opened(TxnId.parse(txn), segment, Position.parse(place))


def begin_write(client: PulsarClient, opened: Opened, write: str, topic: str) -> None:
    """Record that a write begins. Raises WriteRefused if its transaction is about to commit, or has ended; the broker's error."""
    mine = _written(client, opened, Note("begun", opened.txn.text, write, topic))
    if any(note.kind == "closing" for note in _notes(client, opened, mine)):
        raise WriteRefused(
            f"The transaction {opened.txn.text} takes no write to {topic} any more: its block has ended.",
            advice="Wait for every write, those of other threads too, before the block ends. Begin another transaction.",
        )


def end_write(client: PulsarClient, opened: Opened, done: Note) -> None:
    """Record that all rows of a write are sent. `done`: a record of the kind `ended`. Raises the broker's error."""
    _written(client, opened, done)


def close(client: PulsarClient, opened: Opened) -> list[Note]:
    """Let the transaction take no more writes, and return its writes, each as its record of the kind `ended`. Raises Unfinished if
    one of them has not ended, the broker's error.
    """
    mine = _written(client, opened, Note("closing", opened.txn.text))
    return finished(_notes(client, opened, mine), opened.txn)


def finished(notes: Iterable[Note], txn: TxnId) -> list[Note]:
    """Return the writes that a transaction has, in the order in which they began. Pure. Raises Unfinished."""
    begun: dict[str, str] = {}
    ended: dict[str, Note] = {}
    for note in notes:
        if note.kind == "closing":
            break
        if note.kind == "begun":
            begun.setdefault(note.write, note.topic)
        else:
            ended.setdefault(note.write, note)
    missing = sorted({topic for write, topic in begun.items() if write not in ended})
    if missing:
        raise Unfinished(
            f"The transaction {txn.text} cannot be committed: a write to {', '.join(missing)} failed, or still runs. Pulsar cannot "
            "take back the rows that it may have sent.",
            advice="Nothing of the transaction is visible. Run the whole block again, and wait in it for every write.",
        )
    return [ended[write] for write in begun]


def merged(places: Iterable[tuple[str, Places]]) -> dict[str, dict[str, tuple[Position, Position]]]:
    """Return for each topic and segment the first and last position of rows. `places`: topics with positions, of several writes."""
    found: dict[str, dict[str, tuple[Position, Position]]] = {}
    for topic, segments in places:
        known = found.setdefault(topic, {})
        for segment, (first, last) in segments.items():
            before = known.get(segment, (first, last))
            known[segment] = min(before[0], first), max(before[1], last)
    return found


def _written(client: PulsarClient, opened: Opened, note: Note) -> Position:
    try:
        return written(client, opened.segment, note.encoded())
    except (TopicTerminated, TopicMissing) as error:
        raise PulsarError(
            f"The journal of the transaction {opened.txn.text} was split, merged or deleted: {error.message}",
            advice="Nothing of the transaction is visible. Run it again; switch automatic splits off for topics of its namespace "
            "whose names begin with __txnsegment.",
        ) from error


def _notes(client: PulsarClient, opened: Opened, to: Position) -> Iterator[Note]:
    """Yield the records of a transaction after its opening, up to a position. Raises WriteRefused if the opening is gone."""
    begins: Sequence[str] | None = None
    for place, entry in entries(client, opened.segment, opened.place, to, inclusive=True):
        data = [message.value or b"" for message in entry.messages()]
        if begins is None:
            begins = [Attempt.decoded(one, opened.segment).txn for one in data] if place == opened.place else []
            if opened.txn.text not in begins:
                break
        for one in data:
            note = Note.decoded(one, opened.segment)
            if note is not None and note.txn == opened.txn.text:
                yield note
    if not begins:
        raise WriteRefused(
            f"The record of the opening of the transaction {opened.txn.text} is not in {opened.segment}.",
            advice="The retention of its namespace is shorter than the block: raise it, and run the block again. If the "
            "transaction was opened in another cluster, give the write the options of its own one.",
        )
