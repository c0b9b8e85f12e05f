"""The kinds of violations that the checker finds. A kind that Jepsen's Kafka checker knows has the same name here."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.history.format import Event

WORDS = {
    # anomalies with the names of Jepsen's Kafka checker
    "aborted read": (4, "a committed read returned a row of a transaction that was aborted, or of a void registration"),
    "precommitted read": (4, "a committed read returned a row before its transaction was committed"),
    "unwritten read": (4, "a committed read returned a row that nobody wrote"),
    "lost write": (5, "a committed row is missing from a read that covers it, or was acknowledged and never committed"),
    "duplicate": (5, "a row was returned twice, by one read or by two micro-batches of one stream"),
    "internal skip": (5, "one read passed over a committed row below others that it returned"),
    "internal reorder": (13, "one read or stream returned rows of a segment or a key against their order"),
    "poll skip": (5, "a stream went on beyond rows that it never returned"),
    "nonmonotonic poll": (5, "a stream's micro-batch begins, or ends, below what it had finished"),
    # anomalies with names of this project
    "wrong transaction": (4, "a row was delivered as one of another transaction than the one that registered it"),
    "ended twice": (1, "a header changed after its end, was not born OPEN, or was deleted while OPEN"),
    "ended both ways": (2, "a transaction's end was confirmed as commit and as abort"),
    "repeat refused": (2, "ending a transaction again the same way was refused"),
    "unknown transaction ended": (2, "the end of a transaction that never was, was confirmed"),
    "txn id reused": (3, "a transaction id was given out twice"),
    "ended another's transaction": (3, "a late commit or abort ended a transaction that was not its own"),
    "other rows committed": (4, "a transaction committed other rows than those that its attempt was to write"),
    "committed out of order": (13, "a transaction committed rows of a key in another order than its attempt wrote them"),
    "wrongly settled": (4, "a registration was settled against its header, or differently twice"),
    "trimmed rows came back": (5, "a read returned rows that retention had taken before it began"),
    "moved row": (5, "a row was seen at two positions, or two at one: positions never change"),
    "outside its range": (5, "a read returned a committed row from outside the range that it was asked for"),
    "read failed": (5, "what a read needed is gone"),
    "replay differs": (5, "the same micro-batch returned other rows, or had another range, the second time"),
    "beyond an open transaction": (6, "a cut, maxReadPosition or watermark lies at or beyond an undecided registration"),
    "horizon went back": (6, "a cut, maxReadPosition or watermark moved back"),
    "watermark deleted": (6, "a watermark was deleted although the layout has its segment"),
    "late registration": (7, "a registration appeared at or below a number that a reader had passed, or below a higher one"),
    "version committed twice": (8, "one version of an application was committed by two transactions"),
    "versions out of order": (8, "a version was committed after a higher one of its application, or lastCommitted went back"),
    "wrong answer": (8, "a committer was told what is not so"),
    "torn read": (9, "a read or micro-batch returned a part of a transaction"),
    "stale read": (9, "a read missed what had been decided, with all below it, before it began"),
    "beyond its cut": (9, "a micro-batch was planned, or a maxReadPosition given, beyond the cut"),
    "stands still": (9, "a stream was told that there is nothing new although there was"),
    "open past its deadline": (10, "a transaction was OPEN after a sweep that began past its deadline"),
    "acked twice": (11, "a position was claimed or acked while another transaction held it, or after it was acked"),
    "ack of an aborted transaction": (11, "an ack whose transaction did not commit reached the cursor"),
    "committed ack lost": (11, "an ack of a committed transaction was released, or was never settled"),
    "redelivered after ack": (11, "a subscription was given what it had acked"),
    "never delivered": (11, "a subscription that had nothing left was never given a committed row"),
    "acknowledged without its rows": (9, "a row was moved to another topic with its acknowledgement, and is not there"),
    "not redelivered": (11, "a subscription passed over what had been released to it"),
    "written after the seal": (12, "a sealed segment took a new ledger"),
    "stalled by a seal": (
        12,
        "a transaction that registered before a seal, or that only met a split or merge, was refused for it",
    ),
    "layout does not tile": (13, "active segments leave a gap, overlap, come back, or their epoch does not rise"),
    "key in several segments": (13, "rows of one key lie in segments that no split or merge connects"),
    "parent with child": (13, "a micro-batch passes a seal of one of its segments"),
    "unbounded": (14, "more is at rest than what is in flight, retention and the applications explain"),
    # anomalies of the marker-based model (persistent://)
    "marker without a decision": (4, "a topic got a marker that the log of the transaction's coordinator does not bear out"),
    "participant left out": (
        9,
        "a committed transaction never ended, or ended as aborted, in a topic that it had written to, or has no rows there",
    ),
    "ended before its markers": (9, "a final state was logged before every participant had its marker"),
    "low-water mark too high": (4, "a marker told a low-water mark at or above a transaction that had not ended"),
    "complaint": (0, "the recorder itself saw something to be wrong"),
}
"""Kind of violation -> (the number of the broken invariant in protocol.md section 8, or 0; its meaning). A call of `Findings.note`
may name another invariant.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. `invariant`: the number of the broken invariant in protocol.md section 8; 0: none. `anomaly`: the kind of
    violation, a key of `WORDS`. `text`: what is wrong, in words. `events`: the events that show it.
    """

    invariant: int
    anomaly: str
    text: str
    events: tuple[Event, ...]

    def __str__(self) -> str:
        return f"invariant {self.invariant}, {self.anomaly}: {self.text}"


class Findings(list[Finding]):
    """The violations found so far."""

    def note(self, anomaly: str, text: str, *events: Event, invariant: int | None = None) -> None:
        self.append(Finding(WORDS[anomaly][0] if invariant is None else invariant, anomaly, text, events))
