"""Turn a recorded history into input for pictures: spans for a timeline, and values over time for charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from conformance.history.findings import Finding
from conformance.history.format import (
    Abort,
    Ack,
    Application,
    Commit,
    Complaint,
    Counts,
    End,
    Entry,
    Event,
    Fault,
    Header,
    Horizon,
    Layout,
    Plan,
    Poll,
    Read,
    ReadFailed,
    Registration,
    Seal,
    Start,
    Sweep,
    Told,
    Trim,
    Watermark,
)
from conformance.results import Series, Span

BUCKETS = 120
"""The rate over a whole history has at most this number of points, plus one."""


MOST = 400
"""Maximum number of spans in one picture."""


def chosen(spans: Sequence[Span], most: int = MOST) -> list[Span]:
    """Return at most `most` spans, ordered by their beginning. If there are more spans, prefer those that are marked as wrong, and
    then those that begin nearest to a span marked as wrong. If no span is marked as wrong, prefer the latest.
    """
    ordered = sorted(spans, key=lambda span: span.began)
    if len(ordered) <= most:
        return ordered
    marks = [span.began for span in ordered if span.wrong] or [ordered[-1].began]
    near = sorted(ordered, key=lambda span: (not span.wrong, min(abs(span.began - mark) for mark in marks[:most])))
    return sorted(near[:most], key=lambda span: span.began)


def clock(events: Iterable[Event]) -> str:
    """Return the unit of the times that `spans` and `series` return. These functions convert a history in ms to seconds (`s`). They
    keep any other unit, which the history's `Start` names.
    """
    unit = next((event.unit for event in events if isinstance(event, Start)), "ms")
    return "s" if unit == "ms" else unit


def spans(events: Sequence[Event], findings: Iterable[Finding] = ()) -> tuple[Span, ...]:
    """Return the spans of a history: the calls of each actor, the time in which each transaction is OPEN, and the time until each
    registration is settled. Spans of events in findings are marked as wrong.
    """
    wrong = {(type(event), event.at) for finding in findings for event in finding.events}
    story = _Story(wrong)
    for event in events:
        story.tell(event)
    per_unit = 1000 if clock(events) == "s" else 1
    scaled = [
        replace(span, began=span.began / per_unit, ended=None if span.ended is None else span.ended / per_unit)
        for span in story.all()
    ]
    return tuple(sorted(scaled, key=lambda span: span.began))


def series(events: Sequence[Event]) -> tuple[Series, ...]:
    """Return three values over time: the committed rows per second, the time between two answers to the same writer, and the time
    from each request to its answer. Only successful commits count. Return nothing if there is no successful commit, or if the
    history's times are not in ms.

    Some recorders record a request when its work is queued. Then the third value includes the time in the queue.
    """
    asked = {event.call: event for event in events if isinstance(event, Commit)}
    told = [event for event in events if isinstance(event, Told) and event.said == "committed" and event.call in asked]
    if not told or clock(events) != "s":
        return ()
    told.sort(key=lambda event: event.at)
    latency = tuple((event.at / 1000, (event.at - asked[event.call].at) / 1000) for event in told)
    rows = [(event.at / 1000, len(asked[event.call].rows)) for event in told]
    before: dict[str, float] = {}
    gaps = []
    for event in told:
        who = asked[event.call].who
        if who in before:
            gaps.append((event.at / 1000, (event.at - before[who]) / 1000))
        before[who] = event.at
    return (
        Series("rows committed", "rows/s", _rate(rows)),
        Series("from one commit of a writer to its next", "s", tuple(gaps), dots=True),
        Series("from a commit's request to its answer", "s", latency, dots=True),
    )


def _rate(amounts: Sequence[tuple[float, int]]) -> tuple[tuple[float, float], ...]:
    """Turn pairs (time, amount) into pairs (time, amount per second), in buckets of whole seconds from the first time on."""
    first = amounts[0][0]
    extent = amounts[-1][0] - first
    width = max(1, math.ceil(extent / BUCKETS))
    sums = [0] * (math.floor(extent / width) + 1)
    for time, amount in amounts:
        sums[math.floor((time - first) / width)] += amount
    return tuple((first + (i + 0.5) * width, total / width) for i, total in enumerate(sums))


@dataclass(slots=True)
class _Begun:
    """A span whose end has not come yet."""

    actor: str
    label: str
    began: float
    wrong: bool

    def end(self, at: float | None, label: str = "", *, wrong: bool = False) -> Span:
        return Span(self.actor, f"{self.label}{label}", self.began, at, self.wrong or wrong)


@dataclass(slots=True)
class _Story:
    wrong: set[tuple[type, float]]
    done: list[Span] = field(default_factory=list)
    calls: dict[str, _Begun] = field(default_factory=dict)
    headers: dict[str, _Begun] = field(default_factory=dict)
    registrations: dict[int, _Begun] = field(default_factory=dict)

    def tell(self, event: Event) -> None:
        match event:
            case Commit(call=call, who=who, app=app, version=version, rows=rows):
                self._call(event, call, who, f"commit v{version} of {app}, {len(rows)} rows")
            case Abort(call=call, who=who, app=app, version=version, txn=txn):
                self._call(event, call, who, f"abort {txn or f'v{version} of {app}'}")
            case End(call=call, who=who, txn=txn, action=action):
                self._call(event, call, who, f"{action} {txn}")
            case Told(call=call, said=said, error=error):
                if call in self.calls:
                    label = f" → {said}" + (f" ({error})" if error else "")
                    self.done.append(self.calls.pop(call).end(event.at, label, wrong=self._is_wrong(event)))
                else:
                    self._moment(event, "answers", f"{call}: {said}")
            case Header():
                self._header(event)
            case Registration():
                self._registration(event)
            case _:
                self._others(event)

    def all(self) -> list[Span]:
        """Return all spans, including those without an end."""
        begun = (*self.calls.values(), *self.headers.values(), *self.registrations.values())
        return [*self.done, *(each.end(None) for each in begun)]

    def _is_wrong(self, event: Event) -> bool:
        return (type(event), event.at) in self.wrong

    def _moment(self, event: Event, actor: str, label: str, began: float | None = None) -> None:
        self.done.append(Span(actor, label, event.at if began is None else began, event.at, self._is_wrong(event)))

    def _call(self, event: Event, call: str, who: str, label: str) -> None:
        if call in self.calls:
            self.done.append(self.calls[call].end(None))
        self.calls[call] = _Begun(who, label, event.at, self._is_wrong(event))

    def _header(self, event: Header) -> None:
        """If the header is OPEN, begin a span. If the header shows a decision, end the span of its transaction and add a span
        without duration.
        """
        before = self.headers.pop(event.txn, None)
        if event.state == "OPEN":
            self.headers[event.txn] = _Begun(
                f"txn {event.txn}", f"OPEN v{event.version} of {event.app}", event.at, self._is_wrong(event)
            )
            return
        if before is not None:
            self.done.append(before.end(event.at))
        commit = "" if event.commit is None else f", commit {event.commit}"
        self._moment(event, f"txn {event.txn}", f"{event.state}{commit}")

    def _registration(self, event: Registration) -> None:
        """Add a span from the appearance of the registration to its settling. A plain message gets a span without duration."""
        before = self.registrations.pop(event.number, None)
        if event.state is None:
            label = f"{event.number}" + (f" of {event.txn}" if event.txn else ", plain")
            begun = _Begun("log", label, event.at, self._is_wrong(event))
            if event.txn is None:
                self.done.append(begun.end(event.at))
            else:
                self.registrations[event.number] = begun
        elif before is not None:
            self.done.append(before.end(event.at, f" → {event.state}", wrong=self._is_wrong(event)))
        elif event.state != "gone" or self._is_wrong(event):
            self._moment(event, "log", f"{event.number} → {event.state}")

    def _others(self, event: Event) -> None:
        for actor, label, began in _described(event, wrong=self._is_wrong(event)):
            self._moment(event, actor, label, began)
        if isinstance(event, Complaint):
            self.done[-1] = replace(self.done[-1], wrong=True)


def _described(event: Event, *, wrong: bool) -> Iterator[tuple[str, str, float]]:
    """Yield the actor, the label and the beginning of an event. Yield nothing if the event is of a kind that pictures leave out. A
    horizon or a count is left out unless it is `wrong`.
    """
    match event:
        case Read(who=who, rows=rows, began=began, cut=cut):
            yield who, f"read {len(rows)} {'new ' if event.more else ''}rows" + ("" if cut is None else f", cut {cut}"), began
        case Plan(stream=stream, start=start, end=end, cut=cut, began=began):
            yield stream, f"plan {start} to {end}, cut {cut}", began
        case Poll(stream=stream, batch=batch, rows=rows, began=began):
            yield stream, f"micro-batch {batch}: {len(rows)} rows", began
        case Horizon(who=who, cut=cut, began=began) if wrong:
            yield who, f"horizon, cut {cut}", began
        case ReadFailed(who=who, error=error, at=at):
            yield who, error, at
        case Sweep(who=who, began=began):
            yield who, "sweep", began
        case Application(app=app, last_committed=last, at=at):
            yield "applications", f"{app}: " + ("deleted" if last is None else f"lastCommitted {last}"), at
        case Watermark(segment=segment, position=position, at=at):
            mark = "deleted" if position is None else f"{position[0]}:{position[1]}"
            yield "watermarks", f"{_short(segment)} {mark}", at
        case Trim(segment=segment, through=through, began=began):
            yield "retention", f"{_short(segment)} trimmed up to {through}", began
        case Seal(number=number, segments=segments, why=why, at=at):
            yield "log", f"{number} seal of {', '.join(map(_short, segments))} ({why})", at
        case Entry(number=number, kind=kind, txn=txn, at=at):
            what = event.state or kind
            yield f"log of {_short(event.log)}", f"{number} {what}{f' of {txn}' if txn else ''}", at
        case Layout(topic=topic, epoch=epoch, at=at):
            yield "layouts", f"{_short(topic)} epoch {epoch}" + (", deleted" if event.deleted else ""), at
        case Ack(subscription=subscription, state=state, txn=txn, at=at):
            yield f"acks of {subscription}", f"{state}{f' by {txn}' if txn else ''} on {_short(event.segment)}", at
        case Counts(when=when, at=at) if wrong:
            yield "at rest", when, at
        case Fault(what=what, at=at):
            yield "faults", what, at
        case Complaint(what=what, at=at):
            yield "recorder", what, at


def _short(name: str) -> str:
    """Return the name of a topic or segment without tenant and namespace."""
    return "/".join(name.split("://")[-1].split("/")[2:]) or name
