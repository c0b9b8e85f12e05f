"""Logs with messages in chunks, and the messages that a reader must find in them, for tests of `pulsar_protocol.chunks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from pulsar_protocol.chunks import Read, encode_chunks
from pulsar_protocol.entries import Compression, Entry, Message, encode_batch, parse
from pulsar_protocol.layout import Position

Log = Sequence[tuple[Position, bytes]]


def chunks(text: str, parts: int, producer: str = "p", sequence: int = 0, compression: Compression = "none") -> list[bytes]:
    """Return the entries of a message in this number of chunks."""
    message = Message((text * parts).encode(), b"k", {"a": "b"})
    size = len(text) if compression == "none" else 10**6
    return encode_chunks(message, size, producer=producer, sequence=sequence, publish_ms=1, compression=compression)


def plain(text: str) -> bytes:
    return encode_batch([Message(text.encode())], producer="p", sequence=0, publish_ms=1)


def log_of(data: Sequence[bytes], ledgers: int = 1) -> Log:
    """Return the entries with positions, divided over this many ledgers."""
    each = -(-len(data) // ledgers)
    return [(Position(7 + number // each, number % each), one) for number, one in enumerate(data)]


def reading(log: Log, reads: list[tuple[Position, Position]] | None = None) -> Read:
    def read(after: Position, to: Position) -> Iterator[tuple[Position, Entry]]:
        if reads is not None:
            reads.append((after, to))
        yield from ((position, parse(data)) for position, data in log if after < position <= to)

    return read


def texts(found: Iterator[tuple[Position, Entry]]) -> list[tuple[Position, str]]:
    return [(position, (one.value or b"").decode()) for position, entry in found for one in entry.rows().messages()]


# --- by definition ----------------------------------------------------------------------------------------------------------


def expected(log: Log) -> list[tuple[Position, str]]:
    """Return the messages of a whole log, by the rules in the docstring of `pulsar_protocol.chunks`. `seen` has, for each uuid, the
    chunks since its last chunk 0.
    """
    found: list[tuple[Position, str]] = []
    seen: dict[str, list[bytes]] = {}
    for position, data in log:
        entry = parse(data)
        if not entry.is_chunk:
            found += [(position, (one.value or b"").decode()) for one in entry.messages()]
            continue
        name, number = entry.metadata.uuid, entry.metadata.chunk_id
        if number == 0:
            seen[name] = []
        held = seen.get(name)
        if held is None or number < len(held):
            continue
        if number > len(held):
            del seen[name]
            continue
        held.append(bytes(entry.payload))
        if len(held) == entry.metadata.num_chunks_from_msg:
            found.append((position, b"".join(seen.pop(name)).decode()))
    return found


@st.composite
def producers(draw: st.DrawFn, name: str) -> list[bytes]:
    """Return what one producer sends: messages in chunks, some of them incomplete, repeated or with gaps, and messages in one
    entry.
    """
    sent: list[bytes] = []
    for sequence in range(draw(st.integers(1, 3))):
        made = chunks(f"{name}{sequence}", draw(st.integers(2, 4)), name, sequence)
        match draw(st.sampled_from(["all", "all", "all", "incomplete", "repeated", "again", "gap", "plain"])):
            case "all":
                sent += made
            case "incomplete":
                sent += made[:-1]
            case "repeated":  # as after a lost connection: chunks that had arrived come again
                at = draw(st.integers(1, len(made)))
                sent += made[:at] + made[draw(st.integers(0, at - 1)) :]
            case "again":
                sent += made[: draw(st.integers(1, len(made)))] + made
            case "gap":
                del made[draw(st.integers(0, len(made) - 2))]
                sent += made
            case "plain":
                sent.append(plain(f"{name}{sequence}"))
    return sent


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Return the entries of two producers in any mixture that keeps the order of each."""
    left = [draw(producers("a")), draw(producers("b"))]
    mixed = []
    while left[0] or left[1]:
        which = draw(st.sampled_from([one for one in left if one]))
        mixed.append(which.pop(0))
    return log_of(mixed, draw(st.integers(1, 2)))
