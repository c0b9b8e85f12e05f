"""The rows of one topic that a subscription has not acknowledged, at one fixed cut, for `txn.read` of `cluster.transaction()`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from metadata.common.errors import OptionError
from metadata.records.row_ranges import NONE, Row, Rows, before, common, minus, texts
from pulsar_protocol import succession
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.whole_cuts import WholeCuts
from spark_txn_source.option_table import ACKNOWLEDGED, STARTING_TIMESTAMP, SUBSCRIPTION
from spark_txn_source.pulsar.batch import ends_of
from spark_txn_source.pulsar.option_table import ENDING_OFFSETS, STARTING_OFFSETS, At
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.planning import without_gone
from spark_txn_source.pulsar.topics import layout
from spark_txn_source.pulsar.watermarks import recorded_cuts
from txnsegment.pulsar.ack_records import WHOLE, Positions, RowsBySegment, State, joined
from txnsegment.pulsar.feeding import HeldPlaces, offset_after, place_rows

_SET: Final = (STARTING_OFFSETS.name, STARTING_TIMESTAMP.name, SUBSCRIPTION.name, ACKNOWLEDGED.name)
"""The options that the subscription decides."""


@dataclass(frozen=True)
class Unread:
    """The unacknowledged rows of a topic. `starts`, `ends`: for each segment that has some, the range of entries to read; a segment
    without a start is read from its beginning. `hidden`: the acknowledged rows among them, and for a segment without a start all
    positions before the ledger of its first row. `rows`: what an acknowledgement of all
    these rows covers, by segment. It also covers the positions between the rows, and whole segments that are sealed. `held`: the
    segments in which the subscription has unread entries. `sent`: see `State`.
    """

    starts: Positions
    ends: Positions
    hidden: RowsBySegment
    rows: RowsBySegment
    held: tuple[str, ...]
    sent: Positions


def check_options(given: Iterable[str]) -> None:
    """Raise OptionError if one of the options is decided by the subscription."""
    decided = {name.lower(): name for name in _SET}
    for name in given:
        if name.lower() in decided:
            raise OptionError(
                f"txn.read does not take the option {decided[name.lower()]}: the subscription says which rows are read.",
                advice="Leave it out. cluster.subscriptions.seek moves a subscription.",
            )


def unread(client: PulsarClient, options: PulsarReadOptions, subscription: str, state: State) -> Unread:
    """Return the unacknowledged rows of the topic of `options`, up to its cut, or to the end that the options give. A transaction
    of txnsegment's writers is there as a whole or not at all, as in each batch. `state`: what the subscription has acknowledged.

    Raises DataLoss, OffsetOutOfRange, or the broker's error.
    """
    topic = options.topic
    sent = SentLog(client, topic, state.sent)
    if options.end == "latest":
        sent.skip_settled()
    found = layout(client, topic)
    offset = without_gone(offset_after(topic, state.rows, state.sent), found, fail_on_data_loss=options.fail_on_data_loss)
    starts = dict(offset.segments)
    with recorded_cuts(options.metadata_url) as recorded:
        places = HeldPlaces(client, topic, subscription, recorded)
        cuts = places.cuts(succession.unread(found, offset.ended), starts)
        places.check_reached(starts, cuts)
    whole = WholeCuts(sent, lambda: layout(client, topic))
    end = options.end
    if isinstance(end, At):
        end = At({name: place for name, place in end.segments.items() if name not in offset.ended})
    ends = ends_of(end, places, whole, found, starts, offset.ended, cuts)
    reached = {name: max(starts.get(name, EARLIEST), ends.get(name, EARLIEST)) for name in cuts}
    ended = succession.ended_at(found, offset.ended, reached, cuts)
    ends = {name: end for name, end in reached.items() if end > starts.get(name, EARLIEST)}
    starts = {name: starts[name] for name in ends if name in starts}
    if options.fail_on_data_loss:
        starts = places.kept(starts)
    # The ledger of the first row, so that a later plan sees whether the broker has deleted it (`BatchReader`).
    firsts = places.first_after({name: EARLIEST for name in ends if name not in starts})
    begins = {name: before(Row(place.ledger, 0, 0)) for name, (place, _, _) in firsts.items()}
    wanted = {name: place_rows(place) for name, place in ends.items()} | dict.fromkeys(ended - offset.ended, before(WHOLE))
    rows = {name: left for name, covered in wanted.items() if (left := minus(covered, state.rows.get(name, NONE)))}
    return Unread(
        starts=starts,
        ends=ends,
        hidden=joined(hidden_between(state.rows, starts, ends), begins),
        rows=rows,
        held=tuple(one.name for one in succession.unread(found, offset.ended)),
        sent=whole.sent.needed_after(reached, ended) if options.end == "latest" else state.sent,
    )


def hidden_between(rows: RowsBySegment, starts: Positions, ends: Positions) -> dict[str, Rows]:
    """Return those of the rows that are in a range of entries, by segment."""
    found = {}
    for name, end in ends.items():
        ranged = minus(place_rows(end), place_rows(starts.get(name, EARLIEST)))
        if among := common(rows.get(name, NONE), ranged):
            found[name] = among
    return found


def read_exactly(found: Iterable[Unread]) -> dict[str, str]:
    """Return the options with which a batch read of these topics has exactly these rows, whatever is acknowledged later."""
    starts, ends, hidden = dict[str, Position](), dict[str, Position](), dict[str, Rows]()
    for one in found:
        starts |= one.starts
        ends |= one.ends
        hidden |= one.hidden
    return {
        STARTING_OFFSETS.name: _json(starts),
        ENDING_OFFSETS.name: _json(ends),
        ACKNOWLEDGED.name: json.dumps({name: texts(rows) for name, rows in sorted(hidden.items())}),
    }


def _json(places: Mapping[str, Position]) -> str:
    return json.dumps({"segments": {name: place.text for name, place in sorted(places.items()) if place > EARLIEST}})
