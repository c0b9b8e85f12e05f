"""The tasks of a write to Pulsar: one entry in flight for each segment, splits and merges, the first attempt, and the options."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.common.errors import OptionError
from pulsar_protocol.client import TxnId
from pulsar_protocol.entries import Compression, Message, Rows
from pulsar_protocol.errors import MessageTooLarge, TopicTerminated
from pulsar_protocol.layout import Bits, Layout, Position, Segment, ring_place
from spark_txn_sink.pulsar.attempts import Attempt, first_of
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE, PulsarWriteOptions
from spark_txn_sink.pulsar.routing import Router
from spark_txn_sink.pulsar.sending import Outgoing, finish, follow
from tests.support.pulsar_layouts import layout_of

TXN = TxnId(0, 5)
URL = "pulsar://h:6650"


# --- sending ---


class Segments:
    """Producers that note how many of their entries are in flight, and refuse entries for a sealed segment."""

    def __init__(self, sealed: str = "") -> None:
        self.sealed = sealed
        self.most: dict[str, int] = {}
        self.received: dict[str, list[bytes | None]] = {}
        self.closed: list[str] = []

    def open(self, segment: str) -> Any:
        return _Producer(self, segment)


class _Producer:
    def __init__(self, over: Segments, segment: str) -> None:
        self._over, self._segment = over, segment
        self._flying = 0
        self._guard = threading.Lock()

    def send(self, messages: Rows, txn: TxnId | None = None, compression: Compression = "none") -> Position:
        assert txn == TXN
        if self._segment == self._over.sealed:
            raise TopicTerminated(f"{self._segment} is sealed.")
        with self._guard:
            self._flying += 1
            self._over.most[self._segment] = max(self._over.most.get(self._segment, 0), self._flying)
        threading.Event().wait(0.002)  # a receipt takes time, in which a second entry would be in flight
        with self._guard:
            self._flying -= 1
            kept = self._over.received.setdefault(self._segment, [])
            kept += messages.values
            return Position(1, len(kept))

    def close(self) -> None:
        self._over.closed.append(self._segment)


def test_a_segment_has_one_entry_in_flight_and_keeps_the_order() -> None:
    over = Segments()
    outgoing = Outgoing(over.open, TXN, "none", "t")
    for number in range(30):
        for segment in ("a", "b"):
            outgoing.send(segment, Rows.of([Message(b"%d" % number)]))
    found = outgoing.finish()
    outgoing.close()
    assert over.most == {"a": 1, "b": 1}
    assert over.received == {one: [b"%d" % number for number in range(30)] for one in ("a", "b")}
    assert found == {one: (Position(1, 1), Position(1, 30)) for one in ("a", "b")}
    assert sorted(over.closed) == ["a", "b"]


# --- splits and merges while a task writes ---


class Ring:
    """A topic whose segments are split and merged. A sealed segment refuses entries. As with a broker, a reader of the layout sees
    the children of a sealed segment later than the seal. `late`: how many reads still get the old layout.
    """

    def __init__(self, late: int) -> None:
        self.layout = self.shown = layout_of(0, 0x8000)
        self._late = late
        self._hidden = 0
        self.received: dict[str, list[tuple[bytes | None, bytes | None]]] = {}

    def open(self, segment: str) -> Any:
        return _Sender(self, segment)

    def read(self) -> Layout:
        if self._hidden:
            self._hidden -= 1
        else:
            self.shown = self.layout
        return self.shown

    def split(self, at: int) -> None:
        active = self.layout.active
        one = active[at % len(active)]
        if one.end > one.start:
            middle = (one.start + one.end) // 2
            self._replace([one], [(one.start, middle), (middle + 1, one.end)])

    def merge(self, at: int) -> None:
        active = self.layout.active
        if len(active) > 1:
            first, second = active[at % (len(active) - 1) :][:2]
            self._replace([first, second], [(first.start, second.end)])

    def _replace(self, parents: Sequence[Segment], ranges: Sequence[tuple[int, int]]) -> None:
        known, number = dict(self.layout.segments), len(self.layout.segments)
        for one in parents:
            known[one.id] = replace(one, active=False)
        for start, end in ranges:
            made = Segment(number, f"s{number}", start, end, True, tuple(one.id for one in parents), ())
            known[number], number = made, number + 1
        self.layout, self._hidden = Layout(self.layout.topic, self.layout.epoch + 1, known), self._late

    def lines(self, key: bytes, bits: Bits) -> list[bytes | None]:
        """Return the values of a key in the order in which a reader gets them: a segment after its parents."""
        return [value for one in self.layout.segments.values() for found, value in self.received.get(one.name, []) if found == key]


class _Sender:
    def __init__(self, ring: Ring, segment: str) -> None:
        self._ring, self._segment = ring, segment

    def send(self, messages: Rows, txn: TxnId | None = None, compression: Compression = "none") -> Position:
        if self._segment not in {one.name for one in self._ring.layout.active}:
            raise TopicTerminated(f"{self._segment} is sealed.")
        kept = self._ring.received.setdefault(self._segment, [])
        kept += [(one.key, one.value) for one in messages.messages()]
        return Position(1, len(kept))

    def close(self) -> None:
        self._segment = "closed"


changes = st.tuples(st.sampled_from(["split", "merge"]), st.integers(0, 7))


@given(
    keys=st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"g", None]), max_size=60),
    when=st.dictionaries(st.integers(0, 59), changes, max_size=8),
    bits=st.sampled_from(["low", "high"]),
    batch_rows=st.integers(1, 25),
    entry_rows=st.integers(1, 7),
    late=st.integers(0, 3),
)
def test_a_task_goes_on_in_the_successors_of_a_sealed_segment(
    keys: list[bytes | None], when: dict[int, tuple[str, int]], bits: Bits, batch_rows: int, entry_rows: int, late: int
) -> None:
    """Each row is there once, in a segment that has its key, and the rows of a key are in order. `when`: the changes of the layout,
    by the number of the entry before which they happen.
    """
    ring = Ring(late)
    router = Router(ring.layout, bits, 10_000, entry_rows, 0)
    outgoing = Outgoing(ring.open, TXN, "none", "t")
    messages, sent = [Message(b"%03d" % number, key) for number, key in enumerate(keys)], 0
    for at in range(0, len(keys), batch_rows):
        router.route(Rows.of(messages[at : at + batch_rows]))
        for segment, entry in router.full():
            if sent in when:
                kind, place = when[sent]
                ring.split(place) if kind == "split" else ring.merge(place)
            sent += 1
            outgoing.send(segment, entry)
            if outgoing.refused:
                follow(router, outgoing, ring.read, pause=lambda seconds: None)
    places = finish(router, outgoing, ring.read)
    outgoing.close()
    assert router.rows == len(keys)
    assert sorted(value or b"" for rows in ring.received.values() for _, value in rows) == [b"%03d" % n for n in range(len(keys))]
    assert places == {name: (places[name][0], Position(1, len(rows))) for name, rows in ring.received.items()}
    by_name = {one.name: one for one in ring.layout.segments.values()}
    for name, rows in ring.received.items():
        for key, _ in rows:
            assert key is None or by_name[name].start <= ring_place(key, bits) <= by_name[name].end
    for key in {one for one in keys if one is not None}:
        assert ring.lines(key, bits) == [b"%03d" % number for number, one in enumerate(keys) if one == key]


@pytest.mark.parametrize("when", range(5))
def test_a_split_between_the_entries_of_one_batch_keeps_the_order(when: int) -> None:
    """The segment of the key is sealed while the task has refused entries, full entries and single rows for it."""
    ring = Ring(late=1)
    router, outgoing = Router(ring.layout, "low", 10_000, 2, 0), Outgoing(ring.open, TXN, "none", "t")
    values = [b"%02d" % number for number in range(11)]
    router.route(Rows.of([Message(value, b"a") for value in values]))
    for number, (segment, entry) in enumerate(router.full()):
        if number == when:
            ring.split(0)
            ring.split(len(ring.layout.active) - 1)
        outgoing.send(segment, entry)
        if outgoing.refused:
            follow(router, outgoing, ring.read, pause=lambda seconds: None)
    finish(router, outgoing, ring.read)
    outgoing.close()
    assert ring.lines(b"a", "low") == values
    assert router.rows == len(values)


def test_a_segment_that_the_layout_does_not_replace_is_an_error() -> None:
    over = Segments(sealed="s1")
    router, outgoing = Router(layout_of(0, 0x8000), "low", 10_000, 1, 1), Outgoing(over.open, TXN, "none", "t")
    times = iter(range(100))
    router.route(Rows.of([Message(b"1")]))
    for segment, entry in router.full():
        outgoing.send(segment, entry)
    outgoing.finish()
    with pytest.raises(TopicTerminated, match="s1 is sealed, but the layout") as raised:
        follow(router, outgoing, lambda: layout_of(0, 0x8000), pause=lambda seconds: None, now=lambda: 10.0 * next(times))
    outgoing.close()
    assert "start the query or the write again" in raised.value.advice


class _Small:
    """A segment whose broker takes at most three bytes in an entry, and whose producer sends larger messages in chunks of three
    bytes. It is sealed after `lives` entries.
    """

    def __init__(self, lives: int = 1000) -> None:
        self.lives = lives
        self.entries: list[bytes] = []
        self.whole: list[bytes] = []

    def send(self, rows: Rows, txn: TxnId | None = None, compression: Compression = "none") -> Position:
        data = b"".join(value or b"" for value in rows.values)
        if len(data) > 3:
            raise MessageTooLarge("An entry is too large.")
        place = self._write(data)
        self.whole += [value or b"" for value in rows.values]
        return place

    def send_large(
        self, message: Message, txn: TxnId | None = None, compression: Compression = "none"
    ) -> tuple[Position, Position]:
        value = message.value or b""
        assert len(value) > 3
        places = [self._write(value[at : at + 3]) for at in range(0, len(value), 3)]
        self.whole.append(value)
        return places[0], places[-1]

    def _write(self, data: bytes) -> Position:
        if len(self.entries) == self.lives:
            raise TopicTerminated("The segment is sealed.")
        self.entries.append(data)
        return Position(1, len(self.entries) - 1)

    def close(self) -> None:
        self.lives = 0


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=12), st.integers(0, 20))
def test_entries_that_are_too_large_are_divided_and_large_rows_are_sent_in_chunks(values: list[bytes], lives: int) -> None:
    """The segment is sealed after `lives` entries, possibly between two chunks of one row. It has the rows before that, in order.
    All others are refused, also a row of which some chunks were sent.
    """
    one = _Small(lives)
    outgoing = Outgoing(lambda segment: one, TXN, "none", "t")
    outgoing.send("s", Rows.of([Message(value) for value in values]))
    places = outgoing.finish()
    refused = [value for rows in outgoing.refused.get("s", []) for value in rows.values]
    assert [*one.whole, *refused] == values
    if not refused:
        assert places == {"s": (Position(1, 0), Position(1, len(one.entries) - 1))}
    elif one.whole:
        first, last = places["s"]
        assert first.entry == 0
        assert b"".join(one.entries[: last.entry + 1]) == b"".join(one.whole)
    else:
        assert places == {}
    outgoing.close()


# --- attempts ---


def test_the_first_attempt_of_a_partition_in_the_log_is_the_one_that_sends() -> None:
    log = [
        Attempt("0_5", "open"),
        Attempt("0_4", "x", 1),
        Attempt("0_5", "a", 1, "app"),
        Attempt("0_5", "b", 1, "app"),
        Attempt("0_5", "c", 0, "app"),
    ]
    assert first_of(log, "0_5", 1) == "a"
    assert first_of(log, "0_5", 0) == "c"
    assert first_of(log, "0_5", 2) is None
    assert [Attempt.decoded(one.encoded()) for one in log] == log


# --- options ---


def parsed(streaming: bool = False, environment: dict[str, str] | None = None, **options: str) -> PulsarWriteOptions:
    given = {"serviceUrl": URL, "topic": "t", **options}
    return PulsarWriteOptions.parse(given, streaming=streaming, environment=environment or {})


def test_defaults() -> None:
    found = parsed()
    assert (found.service_url, found.topic) == (URL, "topic://public/default/t")
    assert (found.hash_bits, found.txn_timeout_ms, found.compression, found.value_format) == ("auto", 600_000, "lz4", "columns")
    assert (found.admin_url, found.txn_app_id, found.key_column) == (None, None, None)


def test_the_admin_url_comes_from_the_option_or_the_environment() -> None:
    assert parsed(environment={ADMIN_VARIABLE: "http://h:8080/"}).admin_url == "http://h:8080"
    assert parsed(environment={ADMIN_VARIABLE: "http://h:8080"}, adminUrl="http://other:1").admin_url == "http://other:1"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "persistent://a/b/c"}, "scalable topics only"),
        ({"topic": "segment://a/b/c/0000-ffff-0"}, "scalable topics only"),
        ({"hashBits": "middle"}, "auto, low, high"),
        ({"adminUrl": "h:8080"}, "REST"),
        ({"txnVersion": "3"}, "without txnAppId"),
        ({"txnAppId": "a"}, "without txnVersion"),
        ({"txnStaging": "x"}, "no transaction of a Pulsar cluster"),
        ({"schemaVersion": "1"}, "latest version of the topic's schema"),
        ({"entryBytes": "8m"}, "entryBytes"),
        ({"path": "other"}, "they differ"),
        ({"afterRestore": "continue"}, "afterRestore"),
    ],
)
def test_options_that_cannot_work_are_errors(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parsed(**options)
