"""Sessions: ephemeral records, closing of a session, views, and the store's clock."""

from __future__ import annotations

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.child import INDEX
from conformance.store.expectations import equal, holds, refused
from metadata.common.errors import BadVersion, SessionLost, Unavailable
from metadata.records.paths import Key, KeyRange
from metadata.store.contract import ABSENT, IndexEntry, decide

cases = Cases("sessions", "session, time")

A, LEADER = Key("/things/a", "p"), Key("/leader", "")
EVERYTHING = KeyRange("/", "/\U0010ffff", "")


@cases.add
def ephemeral_records_go_with_their_session(area: Area) -> None:
    """While a session has an ephemeral record, no other session can create a record of the same key. When the session ends, its
    record is deleted with the index entries.
    """
    leader = area.open()
    made = leader.put(LEADER, b"me", expect=ABSENT, indexes=(IndexEntry("i", "k"),), ephemeral=True)
    leader.put(A, b"stays")
    with refused(BadVersion, naming="/leader", what="a second leader"):
        area.store.put(LEADER, b"you", expect=ABSENT, ephemeral=True)
    equal(area.store.view().scan_index("i", "", "z"), [made], "the index while it lives")
    leader.close()
    equal(area.store.view().get(made.key), None, "the ephemeral record afterwards")
    equal(area.store.view().scan_index("i", "", "z"), [], "the index afterwards")
    holds(area.store.view().get(A) is not None, "a lasting record of the session is still there")
    area.store.put(LEADER, b"you", expect=ABSENT, ephemeral=True)


@cases.add
def an_unconditional_put_changes_whose_the_record_is(area: Area) -> None:
    """The last unconditional put of a record decides whether the record is ephemeral, and to which session it belongs."""
    leader = area.open()
    leader.put(A, b"1", indexes=(IndexEntry("i", "k"),), ephemeral=True)
    area.store.put(A, b"2", indexes=(IndexEntry("i", "k"),))
    leader.close()
    equal([r.value for r in area.store.view().scan_index("i", "", "z")], [b"2"], "a record that was made lasting")
    other = area.open()
    other.put(A, b"3", indexes=(IndexEntry("i", "k"),), ephemeral=True)
    other.put(A, b"4", indexes=(IndexEntry("i", "k"),), ephemeral=True)
    other.close()
    equal(area.store.view().get(A), None, "a record that was made ephemeral")
    equal(area.store.view().scan_index("i", "", "z"), [], "its index entry")


@cases.add
def only_the_sessions_own_records_go(area: Area) -> None:
    """When a session ends, the ephemeral records of other sessions stay."""
    one, other = area.open(), area.open()
    one.put(Key("/members/one", ""), b"1", ephemeral=True)
    kept = other.put(Key("/members/other", ""), b"2", ephemeral=True)
    one.close()
    equal(area.store.view().scan(KeyRange("/members/", "/members/~", "")), [kept], "the members afterwards")


@cases.add
def one_leader_at_a_time(area: Area) -> None:
    """Many sessions create one ephemeral record. Exactly one session succeeds. After it has closed, exactly one other succeeds."""
    sessions = [area.open() for _ in range(area.sizes.actors)]
    while sessions:
        won = []
        for session in sessions:
            try:
                session.put(LEADER, b"me", expect=ABSENT, ephemeral=True)
                won.append(session)
            except BadVersion:
                continue  # another session has the record; the check below counts the winners
        equal(len(won), 1, f"leaders among {len(sessions)} sessions")
        won[0].close()
        sessions.remove(won[0])


@cases.add
def ephemeral_records_of_a_killed_process_go(area: Area) -> None:
    """A killed process cannot close its session. Its ephemeral record is deleted all the same, when the store's time limit for the
    session has passed.
    """
    child = area.child("hold", path=LEADER.path)
    child.wait_ready()
    child.go()
    equal(child.line(), "held", "what the process says")
    holds(area.store.view().get(LEADER) is not None, "the record is there while the process lives")
    with refused(BadVersion, naming=LEADER.path, what="a second leader"):
        area.store.put(LEADER, b"you", expect=ABSENT, ephemeral=True)
    child.kill()
    gone = area.until(lambda: area.store.view().get(LEADER) is None, "the record of a killed process goes")
    equal(area.store.view().scan_index(INDEX, "", "~"), [], "its index entry")
    equal(area.store.view().keys(EVERYTHING), [], "the list of keys")
    equal(area.store.put(LEADER, b"you", expect=ABSENT, ephemeral=True).version, 0, "the version of the next leader")
    area.figures["seconds until it was gone"] = gone


@cases.add
def a_closed_store_says_so(area: Area) -> None:
    """A store may be closed twice. A read of a closed store, or of a view of it, raises Unavailable or SessionLost. A put raises
    Unavailable.
    """
    store = area.open()
    view = store.view()
    store.close()
    store.close()
    with refused(Unavailable, SessionLost, naming="closed", what="a new view of a closed store"):
        store.view().get(A)
    with refused(Unavailable, SessionLost, naming="", what="an old view of a closed store"):
        view.get(A)
    with refused(Unavailable, naming="closed", what="a put on a closed store"):
        store.put(A, b"x")


@cases.add
def decide_runs_its_body_on_a_view(area: Area) -> None:
    """`decide` runs its body on a view and returns the result of the body."""
    made = area.store.put(A, b"x")
    equal(decide(area.store, lambda view: view.get(A)), made, "what the body saw")


@cases.add
def the_store_has_a_clock(area: Area) -> None:
    """`now_ms` is in ms since 1970 and does not go back. The times of sessions differ by less than the deadline allowance (5 s)."""
    times = [session.view().now_ms() for session in (area.store, area.open(), area.store, area.open())]
    holds(times[0] > 1_700_000_000_000, f"{times[0]} is a time of today in ms since 1970")
    holds(times[0] <= times[2], f"the clock of one session does not go back: {times[0]}, {times[2]}")
    holds(max(times) - min(times) < 5_000, f"sessions agree on the time: {times}")
