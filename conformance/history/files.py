"""Histories in files. The functions turn events into lines, and lines into events. They read, write and merge histories. Events
that a `Writer` has added survive a SIGKILL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from pydantic import TypeAdapter, ValidationError

from conformance.history.format import FORMAT, Event, Read, Start


class FormatError(ValueError):
    """A line is not an event of this format. The message names the line and the reason."""


def _word(kind: type) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in kind.__name__).removeprefix("-")


KINDS: dict[str, type] = {_word(kind): kind for kind in Event.__args__}
"""The value of `event` in a line -> the class of the event."""
_WORDS = {kind: word for word, kind in KINDS.items()}
_ADAPTERS: dict[str, TypeAdapter[Any]] = {}


def line(event: Event) -> str:
    """Return the event as one line, without the newline."""
    fields: dict[str, Any] = {"event": _WORDS[type(event)]}
    defaults = event._field_defaults
    fields |= {name: value for name, value in event._asdict().items() if name not in defaults or value != defaults[name]}
    if isinstance(event, Start):
        fields["format"] = event.format
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def parse(text: str, where: str = "line") -> Event:
    """Return the event of one line. Raises FormatError, with `where` in the message."""
    try:
        fields = json.loads(text)
        word = fields.pop("event")
        kind = KINDS[word]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise FormatError(
            f"{where}: not an event of a history ({type(error).__name__}: {error}); known are {', '.join(KINDS)}"
        ) from None
    if word not in _ADAPTERS:
        _ADAPTERS[word] = TypeAdapter(kind)
    try:
        event: Event = _ADAPTERS[word].validate_python(fields)
    except ValidationError as error:
        raise FormatError(f"{where}: {word}: {error}") from None
    if isinstance(event, Start) and event.format != FORMAT:
        raise FormatError(f"{where}: format {event.format}; this checker reads format {FORMAT}. Use the version that recorded it.")
    return event


def read(path: Path) -> list[Event]:
    """Return the events of a file, in order. Raises FormatError if a line is not an event, or if the file does not begin with a
    `Start`.

    A killed recorder may leave a partial last line, which is not an event. `repair` removes such a line.
    """
    with path.open(encoding="utf-8") as lines:
        events = [parse(text, f"{path}, line {number}") for number, text in enumerate(lines, 1)]
    if not events or not isinstance(events[0], Start):
        raise FormatError(f"{path} does not begin with a start line: it is empty or no history.")
    return events


def repair(path: Path) -> bool:
    """Remove a partial last line, if the file has one. Return whether it had one. Call this only after its recorder was killed."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole == data:
        return False
    path.write_bytes(whole)
    return True


def merge(histories: Iterable[Iterable[Event]]) -> list[Event]:
    """Merge the histories of recorders with the same clock. Return the earliest `Start` and then all events, ordered by `at`."""
    events = [event for history in histories for event in history]
    starts = sorted((e for e in events if isinstance(e, Start)), key=lambda e: e.at)
    return [*starts[:1], *sorted((e for e in events if not isinstance(e, Start)), key=lambda e: e.at)]


def write(path: Path, events: Iterable[Event]) -> None:
    """Write a whole history."""
    with path.open("w", encoding="utf-8") as out:
        out.writelines(f"{line(event)}\n" for event in events)


def shortened(before: Read | None, event: Read) -> Read:
    """If a read repeats all rows of the previous read, return it with only its further rows (`Read.more`). Otherwise return it
    unchanged. `before`: the previous read of the same reader, with all of its rows; None: there is none.
    """
    if before is None or before.topics != event.topics:
        return event
    rows = set(event.rows)
    if len(rows) != len(event.rows) or not rows.issuperset(before.rows):
        return event
    known = set(before.rows)
    return event._replace(rows=tuple(r for r in event.rows if r not in known), ordered=False, more=True)


class Writer:
    """Appends events to one file. It gives each event to the operating system at once, so that events survive a SIGKILL.

    Only one process and one thread may use a file at a time. Several processes record into several files (`merge`).
    """

    def __init__(self, path: Path, start: Start) -> None:
        self._out: TextIO = path.open("a", encoding="utf-8")
        if self._out.tell() == 0:
            self.add(start)

    def add(self, event: Event) -> None:
        self._out.write(f"{line(event)}\n")
        self._out.flush()

    def close(self) -> None:
        self._out.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Resumed(Writer):
    """Continues the file of a process that was killed, and first removes a partial last line. `before`: the events in the file."""

    def __init__(self, path: Path, start: Start) -> None:
        if path.exists():
            repair(path)
        self.before = read(path) if path.exists() and path.stat().st_size else []
        super().__init__(path, start)
