"""What must be true of a finished world (protocol.md section 8), decided from its history and its store, from the outside."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from conformance.simulator.observer import History, Row, Seen
from metadata.store.memory import MemoryState


def topic_of(segment: str) -> str:
    return "topic://" + segment.removeprefix("segment://").rpartition("/")[0]


def reads(history: History, kept: frozenset[str]) -> list[str]:
    """Each read returned exactly the committed rows of its range: none lost, doubled, torn, aborted or open (4, 5, 7, 9).

    `kept`: topics that were never deleted; of the others a read knows what its segments hold.
    """
    found = []
    by_segment: dict[str, list[Row]] = {}
    for rows in history.truth.values():
        for row in rows:
            by_segment.setdefault(row[1], []).append(row)
    for seen in history.seen:
        expected = _expected(by_segment, seen, kept)
        if sorted(seen.rows) != expected:
            found.append(_difference(seen, expected))
    return found


def _expected(by_segment: dict[str, list[Row]], seen: Seen, kept: frozenset[str]) -> list[Row]:
    return sorted(
        row
        for segment, rows in by_segment.items()
        if topic_of(segment) in seen.topics and (topic_of(segment) in kept or segment in seen.segments)
        for row in rows
        if seen.start < row[0] <= seen.end
    )


def _difference(seen: Seen, expected: Sequence[Row]) -> str:
    got, want = Counter(seen.rows), Counter(expected)
    return (
        f"{seen.who} ({seen.kind} {seen.start}..{seen.end}, cut {seen.cut}): "
        f"lost {sorted((want - got).elements())}, extra {sorted((got - want).elements())}"
    )


def streams(history: History, finished: dict[str, list[Row]]) -> list[str]:
    """A stream's micro-batches, one after the other, hold no row twice (5)."""
    return [f"{name} was given a row twice" for name, rows in finished.items() if len(rows) != len(set(rows))]


def answers(history: History) -> list[str]:
    """Who was told "committed" or "skipped" had its version committed; who was told that nothing counts, did not commit (8)."""
    found = []
    for who, app, version, said, txn, query in history.said:
        key = (_encoded(app), version)
        nothing = said == "committed" and not txn and "random" in app  # an empty write of an application that nobody can fence
        if said in ("committed", "skipped") and not nothing and key not in history.decided:
            found.append(f"{who} was told {said} for version {version} of {app}, which nobody committed")
        if said == "committed" and txn and history.decided.get(key) != txn:
            found.append(f"{who} was told that {txn} committed version {version} of {app}: {history.decided.get(key)} did")
        if said == "skipped" and history.by.get(key) != query:
            found.append(f"{who} was told that version {version} of {app} is committed: {history.by.get(key)} did, not {query}")
        if said == "VersionConflict" and history.last.get(_encoded(app), -1) < version:
            found.append(
                f"{who}: version {version} of {app} was refused although only {history.last.get(_encoded(app))} is committed"
            )
    return found


def _encoded(app: str) -> str:
    from metadata.paths import encode

    name, _, topic = app.partition(":")
    return f"{encode(name)}:{encode(topic)}"


def leftovers(state: MemoryState, applications: int, segments: int) -> list[str]:
    """Metadata is bounded by what is in flight (nothing), retention (passed) and the number of applications (14)."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for key in state.records:
        kinds[_kind(key.path)].append(key.path)
    allowed = {
        "/log/": 1,
        "/txn/app/": applications,
        "/txn/segment-state/watermark/": segments,
        "/txn/segment-events/": 3 * segments,
    }
    found = []
    for kind in ("/log/", "/txn/id/", "/txn/op/", "/txn/app/", "/txn/segment-state/aborted/", "/txn/segment-events/"):
        if len(kinds[kind]) > allowed.get(kind, 0):
            found.append(f"{len(kinds[kind])} records are left, expected at most {allowed.get(kind, 0)}: {sorted(kinds[kind])}")
    return found


def _kind(path: str) -> str:
    for kind in ("/txn/segment-state/watermark/", "/txn/segment-state/aborted/"):
        if path.startswith(kind):
            return kind
    parts = path.split("/")
    return f"/{parts[1]}/{parts[2]}/" if parts[1] == "txn" else f"/{parts[1]}/"
