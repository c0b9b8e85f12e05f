"""Layouts of a topic of a Pulsar cluster, without a broker."""

from __future__ import annotations

from pulsar_protocol.layout import Layout, Segment


def layout_of(*starts: int) -> Layout:
    """Return a layout of active segments `s0`, `s1`, .. that begin at these places of the ring."""
    ends = [start - 1 for start in starts[1:]] + [0xFFFF]
    made = {
        number: Segment(number, f"s{number}", start, end, True, (), ())
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    }
    return Layout("topic://public/default/t", 0, made)
