"""Connection failures: a proxy loses replies or refuses connections. Cases check what a call raises and what the store holds."""

from __future__ import annotations

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import equal, holds, refused
from metadata.common.errors import BadVersion, Unavailable, UnknownOutcome
from metadata.records.paths import LOG, Key
from metadata.store.contract import ABSENT, IndexEntry, decide

cases = Cases("connections", "errors: unavailable, unknown outcome")

A = Key("/a", "")


@cases.add
def a_put_whose_reply_is_lost(area: Area) -> None:
    """A put whose reply is lost raises UnknownOutcome. It took effect once, with its index entries. A second put with the same
    expected version raises BadVersion.
    """
    far, proxy = area.far()
    old = far.put(A, b"1", indexes=(IndexEntry("i", "1"),))
    with proxy.drop_replies(), refused(UnknownOutcome, naming="", what="a put whose reply is lost"):
        far.put(A, b"2", expect=old, indexes=(IndexEntry("i", "2"),))
    found = area.store.view().get(A)
    equal(found and (found.value, found.version), (b"2", 1), "the record")
    equal(area.store.view().scan_index("i", "", "9"), [found], "the index")
    with refused(BadVersion, naming="/a", what="the same put again"):
        far.put(A, b"2", expect=old)


@cases.add
def an_append_whose_reply_is_lost(area: Area) -> None:
    """An append whose reply is lost raises UnknownOutcome. The record is there once, since no backend repeats an append (A26)."""
    far, proxy = area.far()
    far.append(LOG, b"1")
    with proxy.drop_replies(), refused(UnknownOutcome, naming="", what="an append whose reply is lost"):
        far.append(LOG, b"2")
    equal([r.value for r in area.store.view().scan(LOG.range())], [b"1", b"2"], "the sequence, from elsewhere")
    equal([r.value for r in far.view().scan(LOG.range())], [b"1", b"2"], "the sequence, from there")


@cases.add
def a_delete_whose_reply_is_lost(area: Area) -> None:
    """A delete whose reply is lost raises UnknownOutcome. The record and its index entries are deleted. A second delete with the
    same expected version raises BadVersion.
    """
    far, proxy = area.far()
    old = far.put(A, b"1", indexes=(IndexEntry("i", "1"),))
    with proxy.drop_replies(), refused(UnknownOutcome, naming="", what="a delete whose reply is lost"):
        far.delete(A, expect=old)
    equal(area.store.view().get(A), None, "the record")
    equal(area.store.view().scan_index("i", "", "9"), [], "the index")
    with refused(BadVersion, naming="/a", what="the same delete again"):
        far.delete(A, expect=old)


@cases.add
def a_store_that_cannot_be_reached(area: Area) -> None:
    """Reads and writes of an unreachable store raise Unavailable. The error of a read names the servers. No such write took
    effect. When the store can be reached again, the same session object works again.
    """
    far, proxy = area.far()
    with proxy.refuse():
        with refused(Unavailable, naming=proxy.hosts, what="a read"):
            far.view().get(A)
        with refused(Unavailable, naming="nothing was done", what="a put"):
            far.put(A, b"x")
    equal(area.store.view().get(A), None, "the record that was not put")
    equal(decide(far, lambda view: view.get(A)), None, "the record, read again")
    far.put(A, b"x", expect=ABSENT)
    holds(area.store.view().get(A) is not None, "the record that was put again")


@cases.add
def a_view_survives_a_lost_connection(area: Area) -> None:
    """A lost connection does not end the session: the store repeats the reads of a view within the same session."""
    far, proxy = area.far()
    made = far.put(A, b"x")
    kept = far.put(Key("/e", ""), b"x", ephemeral=True)
    view = far.view()
    equal(view.get(A), made, "the first read")
    for _ in range(2):
        proxy.cut()
        equal(view.get_many([A, kept.key]), [made, kept], "the same view after its connection was cut")
        equal(view.keys(LOG.range()), [], "its lists")
